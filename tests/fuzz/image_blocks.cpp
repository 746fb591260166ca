#include <array>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "hooks/unpack/block_decompressor.hpp"
#include "hooks/unpack/lzo.hpp"
#include "tests/fuzz/target.hpp"

/// A compressed block of a squashfs file; the first byte says by what, and how much it may become.
void situla::fuzz(std::string_view bytes) {
  if (bytes.empty()) return;
  constexpr std::array<size_t, 4> kCapacities = {8192, 131072, 100, 1};
  const auto choice = static_cast<unsigned char>(bytes.front());
  bytes.remove_prefix(1);
  const size_t capacity = kCapacities.at(choice >> 6U);
  // Memory of its own, so that a byte behind it is found.
  std::vector<char> out(capacity);
  constexpr unsigned kMostCompressors = 8;
  const auto compressor = static_cast<uint16_t>(choice % kMostCompressors);
  auto decompressor = BlockDecompressor::create(compressor, 131072);
  if (!decompressor) return;
  const auto size = decompressor->decompress(bytes, out.data(), out.size());
  if (!size) return;
  if (*size > capacity) std::abort();
  // One that has seen a block before gives the same.
  std::vector<char> again(capacity);
  const auto second = decompressor->decompress(bytes, again.data(), again.size());
  if (!second || *second != *size || std::memcmp(out.data(), again.data(), *size) != 0) std::abort();
}
