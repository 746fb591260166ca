// Which compressed blocks of a finished squashfs file can another one take over as they are?
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "hooks/import/squash_options.hpp"

namespace situla {

/// Bytes that a block takes in the file; the argument is the inode's word for it.
constexpr uint32_t stored_size(uint32_t block) {
  return block & 0xFFFFFFU;
}

/// Where the content of a regular file lies in a squashfs file: the fields of its inode (squashfs 4.0).
struct StoredFile {
  static constexpr uint32_t kNoFragment = 0xFFFFFFFFU;
  uint64_t start = 0;   ///< of the first block, bytes from the start of the squashfs file
  uint64_t size = 0;    ///< of the content, bytes
  uint64_t sparse = 0;  ///< bytes of it in blocks that are not stored
  uint32_t fragment = kNoFragment;
  uint32_t fragment_offset = kNoFragment;
  std::vector<uint32_t> blocks;  ///< as in the inode: stored size, bit 24 set when not compressed; 0 is a hole

  /// Bytes that the blocks take in the file.
  [[nodiscard]] uint64_t stored_bytes() const;
};

/// A block of small files' contents.
struct StoredFragment {
  uint64_t start = 0;
  uint32_t size = 0;  ///< as in StoredFile::blocks
};

/// A complete squashfs file, read by its descriptor: it may lose its name meanwhile.
class SquashfsDonor {
 public:
  /// ErrorKind::corrupt for what is no squashfs file. `where` names it in errors.
  static Result<std::unique_ptr<SquashfsDonor>> open(UniqueFd fd, const std::string& where);

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] const std::string& where() const { return where_; }
  /// Whether blocks of a file written so can be read in one written with these options.
  [[nodiscard]] bool fits(const SquashOptions& options) const;
  [[nodiscard]] Result<StoredFragment> fragment(uint32_t index) const;
  /// Whether the blocks lie inside the file; what has been damaged is not to be copied.
  [[nodiscard]] bool contains(uint64_t start, uint64_t bytes) const;

 private:
  SquashfsDonor(UniqueFd fd, std::string where) : fd_(std::move(fd)), where_(std::move(where)) {}
  UniqueFd fd_;
  std::string where_;
  uint32_t compressor_ = 0;  ///< squashfs's number
  uint32_t block_bytes_ = 0;
  uint64_t data_end_ = 0;  ///< where the inodes begin
  std::vector<StoredFragment> fragments_;
};

}  // namespace situla
