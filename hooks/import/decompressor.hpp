// How do the compressed bytes of a layer become a tar stream? gzip by ISA-L or zlib, zstd by libzstd, plain; told by
// the first bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "common/base/result.hpp"

namespace situla {

class Decompressor {
 public:
  virtual ~Decompressor() = default;
  /// Bytes that the input made it keep: the window of zstd.
  [[nodiscard]] virtual uint64_t memory() const { return 0; }
  /// Takes bytes off the front of input, writes at most capacity bytes to output and returns how many. 0 with input
  /// left never happens; 0 with empty input: more is needed, or it is the end.
  virtual Result<size_t> run(std::string_view& input, char* output, size_t capacity) = 0;
  /// No more input comes; ErrorKind::corrupt if the stream is cut short.
  virtual Result<void> finish() = 0;
};

/// first: the first bytes of the layer, four if it has so many. The media type is not asked: registries and tools get
/// it wrong.
Result<std::unique_ptr<Decompressor>> make_decompressor(std::string_view first);

}  // namespace situla
