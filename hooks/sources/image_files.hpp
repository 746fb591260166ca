// Where are the files of an image: in a directory, or inside a tar archive that is never unpacked?
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/spec/import_budget.hpp"

namespace situla {

/// Bytes of an open file, to be read with pread(2).
struct FileRange {
  std::shared_ptr<UniqueFd> fd;
  uint64_t offset = 0;
  uint64_t size = 0;
};

class ImageFiles {
 public:
  explicit ImageFiles(const ImportBudget& budget) : budget_(budget) {}
  virtual ~ImageFiles() = default;
  /// By its name relative to the image, "blobs/sha256/ab12...". ErrorKind::not_found if there is none.
  virtual Result<FileRange> open(const std::string& name) = 0;
  /// "/data/image.tar", for errors; printable.
  [[nodiscard]] virtual const std::string& place() const = 0;
  [[nodiscard]] const ImportBudget& budget() const { return budget_; }

 private:
  const ImportBudget budget_;
};

/// Names that are opened there come from digests and constants only. Links are followed with the rights of the caller.
Result<std::unique_ptr<ImageFiles>> open_image_directory(const std::string& path, const ImportBudget& budget);
/// An uncompressed tar. Its headers are read once; contents are then read where they are. Symbolic and hard links
/// inside of it are followed, names that lead out of it name nothing. ErrorKind::corrupt if it is cut short.
Result<std::unique_ptr<ImageFiles>> open_image_archive(const std::string& path, const ImportBudget& budget);
Result<std::unique_ptr<ImageFiles>> index_image_archive(UniqueFd fd, const std::string& place,
                                                        const ImportBudget& budget);

/// The whole range, of at most limit bytes, which the key of situla.toml gives; what: "the manifest", for errors.
Result<std::string> read_range(const FileRange& range, uint64_t limit, const char* key, const std::string& what);

}  // namespace situla
