// Where do a node's imported images live, who imports which one now, and what is known about them? DESIGN.md section 4.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/spec/digest.hpp"
#include "common/sys/file.hpp"
#include "hooks/import/import.hpp"
#include "hooks/import/session.hpp"

namespace situla {

/// One image of the store, from its JSON record.
struct StoreRecord {
  Digest digest;
  std::string variant;
  std::vector<std::string> sources;  ///< ImageSource::origin(), with '/' between, through which somebody was let in
  std::string architecture;
  uint64_t image_bytes = 0;
  uint64_t fetched_bytes = 0;
  int64_t imported = 0;  ///< seconds since the epoch
};

/// `<store>/images/sha256/<manifest digest>[.<variant>].sqsh`, mode 0444, and `.json` beside it. All of it belongs to
/// the service user. Having a file here opens nothing to anybody: the importer asks the registry for the manifest, with
/// the user's own credentials, every time. An answer that names a digest of the store is enough where the record knows
/// the registry and repository. Elsewhere (anybody can run a registry that serves a manifest he has seen) the registry
/// must show that it has the layers and gives them to this user.
class ImageStore {
 public:
  /// Makes the directories that are missing. ErrorKind::denied when they cannot be written.
  static Result<ImageStore> open(const std::string& directory);

  [[nodiscard]] std::string image_path(const Digest& digest, const std::string& variant) const;
  [[nodiscard]] std::string record_path(const Digest& digest, const std::string& variant) const;
  /// Path of a complete image, if the store has it.
  [[nodiscard]] std::optional<std::string> find(const Digest& digest, const std::string& variant) const;

  /// Asks the registry what the reference means; imports the image unless it is here. One import at a time per image:
  /// others wait and say so. `variant`: "" (zstd level 1) or "lz4". The user's squashfs options do not count here: the
  /// file is everybody's.
  Result<ImportedImage> import(const ImportRequest& request, const std::string& variant, Progress& progress,
                               LogSink& log);

  [[nodiscard]] Result<StoreRecord> read_record(const Digest& digest, const std::string& variant) const;

 private:
  /// Fetches the image and gives it its name. record: filled.
  Result<void> add(ImportSession& session, ImportedImage& image, StoreRecord& record, Progress& progress,
                   LogSink& log) const;
  /// An image that is here: may this user have it?
  Result<void> check_access(ImportSession& session, const ImportedImage& image, const StoreRecord& record,
                            Progress& progress) const;

  explicit ImageStore(std::string directory) : directory_(std::move(directory)) {}
  std::string directory_;
};

}  // namespace situla
