// How much has this image made the import take, and is it too much?
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "common/base/result.hpp"
#include "common/spec/import_budget.hpp"

namespace situla {

// The memory of an import, which stays under 256 MiB:
// * What does not depend on the image, some 105 MiB: the download window (48 MiB), decompressed chunks (6 MiB), blocks
//   on their way through the compressors (32 MiB at most), one manifest and one configuration (4 MiB each, and what
//   parsing them takes: bounded by values and depth, json.hpp), headers of one tar entry (2 MiB, and what libarchive
//   makes of them), and the program itself.
// * What grows with the image. Every byte of it is taken from one budget, `metadata`, by whoever keeps it: entries,
//   names and directories (LayerTable), hashes of hidden paths (HiddenPaths), places of content, block lists and what
//   libsquashfs keeps to find equal ones (ImageBuilder), sets of attributes (XattrSets), nodes (RootTree), the tables
//   that are written last (TreeWriter), the window of a zstd layer (LayerStream), and indexes of known layers until
//   they are replayed (LayerIndex).
// * Nothing else grows: entries, layers and texts have limits of their own.

/// Error for a number beyond its limit. `what` is the subject: "the image has 512 layers".
Error over_limit(const std::string& what, const std::string& limit, const char* key);
/// The same for a manifest or a configuration, `what`, of so many bytes.
Error text_over_limit(const std::string& what, uint64_t size, uint64_t limit, const char* key);

/// Takes from an ImportBudget; one for each image that is built. From any thread.
class ImportMeter {
 public:
  explicit ImportMeter(const ImportBudget& budget) : budget_(budget) {}

  [[nodiscard]] const ImportBudget& budget() const { return budget_; }
  Result<void> take_entry();
  /// Bytes that will stay in memory.
  Result<void> take_memory(uint64_t bytes);
  void give_back(uint64_t bytes) { memory_ -= bytes; }
  [[nodiscard]] uint64_t memory() const { return memory_; }
  /// Bytes of a set of extended attributes that no earlier entry had.
  Result<void> take_xattrs(uint64_t bytes);
  /// The content of a file; compressed: the bytes of the image's layers, as the manifest has them.
  Result<void> take_file(uint64_t size, uint64_t compressed);
  /// So much of the tar streams is decompressed, from so many bytes.
  Result<void> check_expansion(uint64_t unpacked, uint64_t compressed) const;

 private:
  const ImportBudget budget_;
  std::atomic<uint64_t> memory_{0};
  std::atomic<uint64_t> entries_{0};  // read by whoever takes memory
  uint64_t xattrs_ = 0, files_ = 0;
};

}  // namespace situla
