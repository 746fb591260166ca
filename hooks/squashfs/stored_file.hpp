// Where in a squashfs file does the content of a regular file lie? In blocks and fragments that another squashfs file
// can take over as they are.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace situla {

/// Bytes that a block takes in the file; the argument is the inode's word for it.
constexpr uint32_t stored_size(uint32_t block) {
  return block & 0xFFFFFFU;
}

/// Message authentication code of stored bytes (block_seal.hpp), and its key.
using Seal = std::array<uint64_t, 2>;
using SealKey = std::array<uint8_t, 32>;

/// The fields of the inode of a regular file (squashfs 4.0).
struct StoredFile {
  static constexpr uint32_t kNoFragment = 0xFFFFFFFFU;
  uint64_t start = 0;   ///< of the first block, bytes from the start of the squashfs file
  uint64_t size = 0;    ///< of the content, bytes
  uint64_t sparse = 0;  ///< bytes of it in blocks that are not stored
  uint32_t fragment = kNoFragment;
  uint32_t fragment_offset = kNoFragment;
  Seal seal{};  ///< of the blocks, and of the fragment; for donors that are checked
  Seal fragment_seal{};
  std::vector<uint32_t> blocks;  ///< as in the inode: stored size, bit 24 set when not compressed; 0 is a hole

  /// Bytes that the blocks take in the file.
  [[nodiscard]] uint64_t stored_bytes() const {
    uint64_t bytes = 0;
    for (const uint32_t block : blocks) bytes += stored_size(block);
    return bytes;
  }
};

/// A block of small files' contents.
struct StoredFragment {
  uint64_t start = 0;
  uint32_t size = 0;  ///< as in StoredFile::blocks
};

}  // namespace situla
