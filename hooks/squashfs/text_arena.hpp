// Where do a million file names live? In large pieces of memory, each named by four bytes.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"

namespace situla {

/// Texts of at most kMaxText bytes, kept until the arena is gone. At most 4 GiB in all; full() tells. None has a NUL
/// byte: they are names and targets of links of a file system.
class TextArena {
 public:
  using Ref = uint32_t;
  static constexpr size_t kMaxText = 65535;
  static constexpr Ref kEmpty = 0;  ///< of "", which is always there

  TextArena() {
    start_piece();
    store({});
  }

  [[nodiscard]] bool full() const { return pieces_.size() + 1 >= (size_t{1} << (32U - kPieceBits)); }

  Result<Ref> add(std::string_view text) {
    if (text.size() > kMaxText)
      return fail(ErrorKind::corrupt, "a name or the target of a link has " + std::to_string(text.size()) +
                                          " bytes, more than " + std::to_string(kMaxText));
    if (text.find('\0') != std::string_view::npos)
      return fail(ErrorKind::corrupt, "a name or the target of a link has a NUL byte");
    if (used_ + sizeof(uint16_t) + text.size() > kPiece) {
      if (full()) return fail(ErrorKind::unsupported, "names and targets of links have more than 4 GiB");
      start_piece();
    }
    return store(text);
  }

  [[nodiscard]] std::string_view get(Ref ref) const {
    const char* place = pieces_[ref >> kPieceBits].get() + (ref & (kPiece - 1));
    uint16_t size = 0;
    std::memcpy(&size, place, sizeof size);
    return {place + sizeof size, size};
  }

 private:
  void start_piece() {
    pieces_.emplace_back(new char[kPiece]);  // NOLINT: not make_unique, which would touch every page
    used_ = 0;
  }
  /// There is room for it.
  Ref store(std::string_view text) {
    const auto size = static_cast<uint16_t>(text.size());
    char* place = pieces_.back().get() + used_;
    std::memcpy(place, &size, sizeof size);
    if (!text.empty()) std::memcpy(place + sizeof size, text.data(), text.size());
    const auto ref = static_cast<Ref>((pieces_.size() - 1) << kPieceBits | used_);
    used_ += sizeof size + text.size();
    return ref;
  }

  static constexpr unsigned kPieceBits = 20;
  static constexpr size_t kPiece = size_t{1} << kPieceBits;
  std::vector<std::unique_ptr<char[]>> pieces_;
  size_t used_ = 0;
};

}  // namespace situla
