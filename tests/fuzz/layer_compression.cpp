#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <string>

#include "hooks/import/decompressor.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using namespace situla;

constexpr size_t kMostOutput = size_t{4} << 20U;  // a small stream may hold very much

struct Unpacked {
  std::string bytes;
  bool whole = false;
  bool cut = false;  ///< there was more than kMostOutput
};

/// In pieces of that size, into room of that size.
Unpacked unpack(std::string_view bytes, size_t piece, size_t room) {
  Unpacked unpacked;
  const auto decompressor = make_decompressor(bytes.substr(0, 4));
  if (!decompressor) std::abort();
  const auto buffer = std::make_unique<char[]>(room);
  while (!bytes.empty()) {
    std::string_view input = bytes.substr(0, piece);
    bytes.remove_prefix(input.size());
    for (;;) {
      const size_t before = input.size();
      const auto size = (*decompressor)->run(input, buffer.get(), room);
      if (!size) return unpacked;
      if (*size > room || input.size() > before) std::abort();
      unpacked.bytes.append(buffer.get(), *size);
      unpacked.cut = unpacked.bytes.size() > kMostOutput;
      if (unpacked.cut) return unpacked;
      // Whoever calls it goes on while there is input, or the room was full.
      if (*size == 0 && !input.empty()) std::abort();
      if (*size < room && input.empty()) break;
    }
  }
  unpacked.whole = (*decompressor)->finish().has_value();
  return unpacked;
}

}  // namespace

/// A layer as it comes: gzip, zstd or plain. The first byte says in which pieces.
void situla::fuzz(std::string_view bytes) {
  if (bytes.empty()) return;
  constexpr std::array<size_t, 4> kPieces = {1, 7, 100, 4096}, kRooms = {1000, 65536, 1, 300};
  const auto choice = static_cast<unsigned char>(bytes.front());
  bytes.remove_prefix(1);
  const size_t piece = kPieces.at(choice & 3U), room = kRooms.at((choice >> 2U) & 3U);
  const Unpacked at_once = unpack(bytes, bytes.size(), 65536);
  const Unpacked in_pieces = unpack(bytes, piece, room);
  if (at_once.cut || in_pieces.cut) return;
  if (at_once.whole != in_pieces.whole) std::abort();
  // Of a damaged stream it depends on the pieces how much comes before it shows.
  const size_t common = std::min(at_once.bytes.size(), in_pieces.bytes.size());
  if (at_once.bytes.compare(0, common, in_pieces.bytes, 0, common) != 0) std::abort();
  if (at_once.whole && at_once.bytes.size() != in_pieces.bytes.size()) std::abort();
}
