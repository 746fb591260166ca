#include "hooks/import/import.hpp"

#include <filesystem>

#include <fcntl.h>
#include <sys/stat.h>

#include "common/base/text.hpp"
#include "common/spec/image_reference.hpp"
#include "common/spec/resolve_rule.hpp"
#include "common/sys/fd_path.hpp"
#include "common/sys/file.hpp"
#include "hooks/import/finished_images.hpp"
#include "hooks/import/layer_cache.hpp"
#include "hooks/import/session.hpp"
#include "hooks/sources/open_source.hpp"
#include "hooks/squashfs/output_file.hpp"

namespace situla {
namespace {

constexpr const char* kLayerCache = "situla-layers";

/// The user's ENROOT_SQUASH_OPTIONS and SOURCE_DATE_EPOCH.
Result<SquashOptions> user_options(const ImportRequest& request, LogSink& log) {
  return options_to_write(request.settings.squash_options, request.settings.source_date_epoch, log);
}

/// An import of which the source has said what it is.
struct Begun {
  std::unique_ptr<ImportRequest> asked;    ///< what the session refers to, where that is not the caller's
  std::unique_ptr<ImportSession> session;  ///< none: the source does not answer, and the file is whole
  Digest digest;
  std::string source;     ///< ImportedImage::source
  bool is_whole = false;  ///< the file has the image already
};

/// The image that `finished` has of it, where the source does not answer.
std::optional<Begun> begin_offline(const ImportRequest& request, FinishedImages& finished, int fd, Progress& progress,
                                   LogSink& log) {
  auto reference = ImageReference::parse(request.image);
  if (!reference) return std::nullopt;
  const auto copy = finished.copy(request, true, fd, progress);
  if (!copy) return std::nullopt;
  log.warning(does_not_answer(reference->registry, printable(request.image), "copied", copy->age, copy->manifest));
  reference->digest = copy->manifest;
  return Begun{nullptr, nullptr, copy->manifest, "docker://" + reference->text(), true};
}

Result<Begun> begin(const ImportRequest& request, FinishedImages* finished, int fd, Progress& progress, LogSink& log,
                    Trace* trace) {
  const ImportSettings& settings = request.settings;
  if (image_kind(request.image) != ImageKind::registry || !settings.squash_options.empty() ||
      settings.source_date_epoch)
    finished = nullptr;
  auto asked = std::make_unique<ImportRequest>(request);
  asked->has_stand_in = finished != nullptr;
  const auto open = [&] {
    const TraceSpan span(trace, "resolve");
    return ImportSession::open(*asked, progress);
  };
  auto session = open();
  if (!session) {
    const ErrorKind why = session.error().kind();
    const bool silent = why == ErrorKind::network || why == ErrorKind::unreachable;
    if (finished == nullptr || !silent) return fail(std::move(session).error());
    if (auto begun = begin_offline(request, *finished, fd, progress, log)) return std::move(*begun);
    asked->has_stand_in = false;
    if (why == ErrorKind::network) session = open();
    if (!session) return fail(std::move(session).error());
  }
  const Digest digest = (*session)->digest();
  Begun begun{std::move(asked), std::move(*session), digest, "", false};
  begun.source = begun.session->uri();
  if (finished == nullptr) return begun;
  const TraceSpan span(trace, "copy");
  ImportRequest exact = request;
  TRY(exact.pin(digest));
  begun.is_whole = finished->copy(exact, false, fd, progress).has_value();
  return begun;
}

}  // namespace

Result<ImportedImage> import_to_file(const ImportRequest& request, const std::string& path,
                                     const std::string& layer_cache, Progress& progress, LogSink& log, Trace* trace,
                                     FinishedImages* finished) {
  if (trace != nullptr) trace->name_thread("tar");
  struct stat status {};
  if (lstat(path.c_str(), &status) == 0)
    return fail(Error(ErrorKind::exists, "File already exists: " + path).with_code(ErrorCode::file_exists));
  TRY_ASSIGN(const SquashOptions options, user_options(request, log));
  // Before anything is fetched: a directory that cannot be written to is known at once.
  TRY_ASSIGN(OutputFile output, OutputFile::create(path));
  TRY_ASSIGN(const Begun begun, begin(request, finished, output.fd(), progress, log, trace));
  const bool reuses = !layer_cache.empty() && !options.all_time;
  DirectoryLayerCache cache(layer_cache, kLayerCache, options);
  BuiltImage built;
  if (!begun.is_whole) {
    TRY_ASSIGN(built, begun.session->write(output.fd(), path, options, progress, reuses ? &cache : nullptr, trace));
  } else if (fstat(output.fd(), &status) == 0) {
    built.image_bytes = static_cast<uint64_t>(status.st_size);
  }
  progress.phase("syncing " + path);
  const TraceSpan sync(trace, "sync");
  if (auto published = output.publish(less_umask(0666)); !published) {
    if (!begun.session) return fail(std::move(published).error());
    return fail(begun.session->explain(std::move(published).error()));
  }
  ImportedImage image;
  if (!begun.is_whole) {
    if (reuses) {
      begun.session->remember(cache, output.fd(), std::filesystem::absolute(path), log);
      cache.trim();
    }
    image.fetched_bytes = begun.session->layer_bytes() - built.reused_bytes;
  }
  image.digest = begun.digest;
  image.path = path;
  image.source = begun.source;
  image.unpacked_bytes = built.unpacked_bytes;
  image.image_bytes = built.image_bytes;
  image.dead_bytes = built.dead_bytes;
  progress.finish("imported " + image.source + " to " + path + ", " + format_size(image.image_bytes));
  return image;
}

Result<UnnamedImage> import_to_unnamed_file(const ImportRequest& request, const std::string& directory,
                                            const std::string& layer_cache, Progress& progress, LogSink& log,
                                            FinishedImages* finished) {
  TRY_ASSIGN(const SquashOptions options, user_options(request, log));
  const std::string where = directory + "/image.sqsh";
  TRY_ASSIGN(const OutputFile output, OutputFile::create(where));
  TRY_ASSIGN(const Begun begun, begin(request, finished, output.fd(), progress, log, nullptr));
  DirectoryLayerCache cache(layer_cache, kLayerCache, options);
  if (!begun.is_whole)
    TRY(begun.session->write(output.fd(), "a temporary file in " + directory, options, progress,
                             layer_cache.empty() || options.all_time ? nullptr : &cache));
  UnnamedImage image;
  image.digest = begun.digest;
  // A descriptor that cannot write: whoever serves the image only reads it.
  TRY_ASSIGN(image.file, open_file(fd_path(output.fd()), O_RDONLY));
  progress.finish("");
  return image;
}

Result<Digest> resolve_digest(const ImportRequest& request, LogSink&) {
  NullProgress silent;
  TRY_ASSIGN(const auto session, ImportSession::open(request, silent));
  return session->digest();
}

Result<Digest> resolve_index_digest(const ImportRequest& request, LogSink&) {
  NullProgress silent;
  Platform platform = Platform::host();
  if (!request.platform.empty()) {
    TRY_ASSIGN(platform, Platform::parse(request.platform));
  }
  TRY_ASSIGN(const auto source, open_source(request, silent));
  return source->named_digest(platform);
}

Result<std::vector<std::string>> list_tags(const ImportRequest& request) {
  NullProgress silent;
  TRY_ASSIGN(const auto source, open_source(request, silent));
  return source->list_tags();
}

Result<ImageDescription> describe_image(const ImportRequest& request, LogSink&) {
  NullProgress silent;
  TRY_ASSIGN(const auto session, ImportSession::open(request, silent));
  const ResolvedImage& resolved = session->resolved();
  ImageDescription image{resolved.digest, session->uri(), resolved.media_type, resolved.bytes, resolved.manifest, {}};
  TRY_ASSIGN(image.config, session->fetch_config());
  return image;
}

}  // namespace situla
