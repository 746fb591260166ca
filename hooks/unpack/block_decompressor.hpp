// How does a compressed block of a squashfs file become bytes again?
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/result.hpp"

namespace situla {

/// For one thread. The compressors of squashfs 4.0 by its numbers: gzip 1, lzma 2, lzo 3, xz 4, lz4 5, zstd 6.
class BlockDecompressor {
 public:
  /// "zstd"; "number 9" for one that squashfs 4.0 has not.
  static std::string name(uint16_t compressor);
  /// ErrorKind::unsupported for a number that this build cannot read.
  static Result<BlockDecompressor> create(uint16_t compressor, uint32_t block_bytes);
  BlockDecompressor(BlockDecompressor&&) noexcept;
  BlockDecompressor& operator=(BlockDecompressor&&) noexcept;
  ~BlockDecompressor();

  /// Bytes written to `out`, at most `capacity`. ErrorKind::corrupt when that is too little, or the block damaged.
  Result<size_t> decompress(std::string_view block, char* out, size_t capacity);

 private:
  struct State;
  explicit BlockDecompressor(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace situla
