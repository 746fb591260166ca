#include "hooks/import/store.hpp"

#include <algorithm>
#include <ctime>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "common/base/text.hpp"
#include "hooks/import/lease.hpp"
#include "hooks/import/output_file.hpp"
#include "hooks/import/session.hpp"

namespace situla {
namespace {

constexpr unsigned kImageMode = 0444;
constexpr mode_t kDirectoryMode = 0755;
constexpr size_t kMaxRecordBytes = size_t{1} << 20U;

Result<SquashOptions> options_of(const std::string& variant) {
  SquashOptions options;  // zstd level 1: measured as the fastest from a cold pull to a running task on two cores
  if (variant == "lz4")
    options.compressor = SquashOptions::Compressor::lz4;
  else if (!variant.empty())
    return fail(Error(ErrorKind::usage, "unknown image variant '" + printable(variant) + "'")
                    .with_hint("there is 'lz4', and none"));
  return options;
}

nlohmann::json to_json(const StoreRecord& record) {
  return {{"version", 1},
          {"digest", record.digest.text()},
          {"variant", record.variant},
          {"sources", record.sources},
          {"architecture", record.architecture},
          {"image_bytes", record.image_bytes},
          {"fetched_bytes", record.fetched_bytes},
          {"imported", record.imported}};
}

Result<void> write_record(const std::string& path, const StoreRecord& record) {
  return write_file_atomically(
      path, to_json(record).dump(2, ' ', true, nlohmann::json::error_handler_t::replace) + "\n", 0644);
}

}  // namespace

Result<ImageStore> ImageStore::open(const std::string& directory) {
  const std::string images = directory + "/images/sha256";
  if (auto made = make_directories(images, kDirectoryMode); !made)
    return fail(std::move(made)
                    .error()
                    .with_context("open the image store")
                    .with_hint("the store belongs to the service user: see store_path in /etc/situla/situla.toml, and "
                               "'situla doctor'"));
  return ImageStore(directory);
}

std::string ImageStore::image_path(const Digest& digest, const std::string& variant) const {
  return directory_ + "/images/sha256/" + digest.hex() + (variant.empty() ? "" : "." + variant) + ".sqsh";
}

std::string ImageStore::record_path(const Digest& digest, const std::string& variant) const {
  std::string path = image_path(digest, variant);
  return path.replace(path.size() - 5, 5, ".json");
}

std::optional<std::string> ImageStore::find(const Digest& digest, const std::string& variant) const {
  std::string path = image_path(digest, variant);
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  return path;
}

Result<StoreRecord> ImageStore::read_record(const Digest& digest, const std::string& variant) const {
  const std::string path = record_path(digest, variant);
  TRY_ASSIGN(const std::string text, read_file(path, kMaxRecordBytes));
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || json.value("version", 0) != 1)
    return fail(ErrorKind::corrupt, path + ": not a record of this version");
  try {
    StoreRecord record;
    TRY_ASSIGN(record.digest, Digest::parse(json.at("digest").get<std::string>()));
    record.variant = json.at("variant").get<std::string>();
    record.sources = json.at("sources").get<std::vector<std::string>>();
    record.architecture = json.at("architecture").get<std::string>();
    record.image_bytes = json.at("image_bytes").get<uint64_t>();
    record.fetched_bytes = json.at("fetched_bytes").get<uint64_t>();
    record.imported = json.at("imported").get<int64_t>();
    return record;
  } catch (const nlohmann::json::exception&) {
    return fail(ErrorKind::corrupt, path + ": a field is missing or of another type");
  }
}

Result<void> ImageStore::add(ImportSession& session, ImportedImage& image, StoreRecord& record, Progress& progress,
                             LogSink& log) const {
  TRY_ASSIGN(const SquashOptions options, options_of(image.variant));
  auto output = OutputFile::create(image.path);
  if (!output) return fail(session.explain(std::move(output).error()));
  DirectoryLayerCache cache(directory_, "layers", options);
  TRY_ASSIGN(const BuiltImage built,
             session.write(output->fd(), image.path, options, progress, {&cache, ImportSession::Owner::everybody}));
  progress.phase("syncing the image");
  auto published = output->publish(kImageMode);
  if (!published && published.error().kind() != ErrorKind::exists)
    return fail(session.explain(std::move(published).error()));
  if (published) {
    session.remember(cache, output->fd(), image.path, log);
    cache.trim();
  }
  image.fetched_bytes = session.layer_bytes() - built.reused_bytes;
  image.unpacked_bytes = built.unpacked_bytes;
  image.image_bytes = built.image_bytes;
  image.dead_bytes = built.dead_bytes;
  record = {image.digest,        image.variant,     {}, session.architecture(), image.image_bytes,
            image.fetched_bytes, std::time(nullptr)};
  // Somebody was faster, on another node.
  if (!published)
    if (auto known = read_record(image.digest, image.variant)) record = std::move(*known);
  return {};
}

Result<void> ImageStore::check_access(ImportSession& session, const ImportedImage& image, const StoreRecord& record,
                                      Progress& progress) const {
  const std::string registry = session.origin().registry + "/";
  bool same_registry = false;
  for (const std::string& source : record.sources) {
    if (source == registry + session.origin().repository) return {};
    same_registry = same_registry || source.starts_with(registry);
  }
  if (same_registry && session.may_read_layers()) return {};
  // Only the layers themselves prove it, and only their digests count: what is written is dropped.
  progress.note("this image was imported from another registry before: fetching it from here once");
  TRY_ASSIGN(const SquashOptions options, options_of(image.variant));
  auto output = OutputFile::create(image.path);
  if (!output) return fail(session.explain(std::move(output).error()));
  DirectoryLayerCache cache(directory_, "layers", options);
  TRY(session.write(output->fd(), image.path, options, progress, {&cache, ImportSession::Owner::everybody}));
  return {};
}

Result<ImportedImage> ImageStore::import(const ImportRequest& request, const std::string& variant, Progress& progress,
                                         LogSink& log) {
  // This runs as the service user: it must not open a file or a socket because somebody else named it.
  if (image_kind(request.image) != ImageKind::registry)
    return fail(Error(ErrorKind::denied, "import " + printable(request.image) + ": only images of a registry go here")
                    .with_hint("images in files and engines are imported by their user: 'situla import'"));
  TRY(options_of(variant));
  TRY_ASSIGN(const auto session, ImportSession::open(request, progress));
  const Digest digest = session->digest();
  ImportedImage image;
  image.digest = digest;
  image.variant = variant;
  image.path = image_path(digest, variant);
  image.source = session->uri();
  const std::string name = session->origin().registry + "/" + session->origin().repository;

  const auto lease = [&]() -> Result<std::optional<Lease>> {
    if (find(digest, variant)) return std::nullopt;
    return Lease::acquire(
        image.path + ".lease", Lease::Options(),
        [&](const std::string& owner) {
          progress.note("waiting for another import of the same image (" + printable(owner) + ")");
        },
        [&] { return progress.cancelled() || find(digest, variant).has_value(); });
  };
  auto held = lease();
  if (!held) return fail(session->explain(std::move(held).error()));

  if (progress.cancelled()) return fail(session->explain({ErrorKind::cancelled, "cancelled"}));

  StoreRecord record;
  if (!find(digest, variant)) {
    TRY(add(*session, image, record, progress, log));
  } else {
    image.reused = true;
    struct stat status {};
    if (stat(image.path.c_str(), &status) == 0) image.image_bytes = static_cast<uint64_t>(status.st_size);
    if (auto known = read_record(digest, variant)) record = std::move(*known);
    record.digest = digest;
    record.variant = variant;
    record.image_bytes = image.image_bytes;
    TRY(check_access(*session, image, record, progress));
    // When the image was asked for last: who cleans the store by hand goes by it (packaging/guides/admin.md).
    (void)utimensat(AT_FDCWD, record_path(digest, variant).c_str(), nullptr, 0);
  }
  if (std::find(record.sources.begin(), record.sources.end(), name) == record.sources.end()) {
    record.sources.push_back(name);
    // The image is good without it; it will be looked at more closely next time.
    if (auto written = write_record(record_path(digest, variant), record); !written)
      log.warning(written.error().message());
  }
  progress.finish(image.reused ? "" : "imported " + image.source + ", " + format_size(image.image_bytes));
  return image;
}

}  // namespace situla
