#include "hooks/import/import.hpp"

#include <filesystem>

#include <fcntl.h>
#include <sys/stat.h>

#include "common/base/text.hpp"
#include "common/sys/fd_path.hpp"
#include "common/sys/file.hpp"
#include "hooks/import/layer_cache.hpp"
#include "hooks/import/session.hpp"
#include "hooks/squashfs/output_file.hpp"

namespace situla {
namespace {

constexpr const char* kLayerCache = "situla-layers";

/// The user's ENROOT_SQUASH_OPTIONS and SOURCE_DATE_EPOCH.
Result<SquashOptions> user_options(const ImportRequest& request, LogSink& log) {
  return options_to_write(request.settings.squash_options, request.settings.source_date_epoch, log);
}

}  // namespace

Result<ImportedImage> import_to_file(const ImportRequest& request, const std::string& path,
                                     const std::string& layer_cache, Progress& progress, LogSink& log, Trace* trace) {
  if (trace != nullptr) trace->name_thread("tar");
  struct stat status {};
  if (lstat(path.c_str(), &status) == 0) return fail(ErrorKind::exists, "File already exists: " + path);
  TRY_ASSIGN(const SquashOptions options, user_options(request, log));
  // Before anything is fetched: a directory that cannot be written to is known at once.
  TRY_ASSIGN(OutputFile output, OutputFile::create(path));
  auto opened = [&] {
    const TraceSpan span(trace, "resolve");
    return ImportSession::open(request, progress);
  }();
  TRY_ASSIGN(const auto session, std::move(opened));
  const bool reuses = !layer_cache.empty() && !options.all_time;
  DirectoryLayerCache cache(layer_cache, kLayerCache, options);
  TRY_ASSIGN(const BuiltImage built,
             session->write(output.fd(), path, options, progress, reuses ? &cache : nullptr, trace));
  progress.phase("syncing " + path);
  const TraceSpan sync(trace, "sync");
  if (auto published = output.publish(less_umask(0666)); !published)
    return fail(session->explain(std::move(published).error()));
  if (reuses) {
    session->remember(cache, output.fd(), std::filesystem::absolute(path), log);
    cache.trim();
  }
  ImportedImage image;
  image.digest = session->digest();
  image.path = path;
  image.source = session->uri();
  image.fetched_bytes = session->layer_bytes() - built.reused_bytes;
  image.unpacked_bytes = built.unpacked_bytes;
  image.image_bytes = built.image_bytes;
  image.dead_bytes = built.dead_bytes;
  progress.finish("imported " + image.source + " to " + path + ", " + format_size(image.image_bytes));
  return image;
}

Result<UnnamedImage> import_to_unnamed_file(const ImportRequest& request, const std::string& directory,
                                            const std::string& layer_cache, Progress& progress, LogSink& log) {
  TRY_ASSIGN(const SquashOptions options, user_options(request, log));
  const std::string where = directory + "/image.sqsh";
  TRY_ASSIGN(const OutputFile output, OutputFile::create(where));
  TRY_ASSIGN(const auto session, ImportSession::open(request, progress));
  DirectoryLayerCache cache(layer_cache, kLayerCache, options);
  TRY(session->write(output.fd(), "a temporary file in " + directory, options, progress,
                     layer_cache.empty() || options.all_time ? nullptr : &cache));
  UnnamedImage image;
  image.digest = session->digest();
  // A descriptor that cannot write: whoever serves the image only reads it.
  TRY_ASSIGN(image.file, open_file(fd_path(output.fd()), O_RDONLY));
  progress.finish("");
  return image;
}

Result<ReferenceDigests> resolve_digests(const ImportRequest& request, LogSink&) {
  NullProgress silent;
  TRY_ASSIGN(const auto session, ImportSession::open(request, silent));
  const Digest manifest = session->digest();
  return ReferenceDigests{manifest, session->resolved().named.value_or(manifest)};
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
