// Where do a million file names live? In large pieces of memory, each named by four bytes.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

namespace situla {

/// Texts of at most kMaxText bytes, kept until the arena is gone. At most 4 GiB in all; full() tells.
class TextArena {
 public:
  using Ref = uint32_t;
  static constexpr size_t kMaxText = 65535;

  [[nodiscard]] bool full() const { return pieces_.size() + 1 >= (size_t{1} << (32U - kPieceBits)); }

  Ref add(std::string_view text) {
    const auto size = static_cast<uint16_t>(text.size());
    if (pieces_.empty() || used_ + sizeof size + text.size() > kPiece) {
      pieces_.emplace_back(new char[kPiece]);  // NOLINT: not make_unique, which would touch every page
      used_ = 0;
    }
    char* place = pieces_.back().get() + used_;
    std::memcpy(place, &size, sizeof size);
    std::memcpy(place + sizeof size, text.data(), text.size());
    const auto ref = static_cast<Ref>((pieces_.size() - 1) << kPieceBits | used_);
    used_ += sizeof size + text.size();
    return ref;
  }

  [[nodiscard]] std::string_view get(Ref ref) const {
    const char* place = pieces_[ref >> kPieceBits].get() + (ref & (kPiece - 1));
    uint16_t size = 0;
    std::memcpy(&size, place, sizeof size);
    return {place + sizeof size, size};
  }

 private:
  static constexpr unsigned kPieceBits = 20;
  static constexpr size_t kPiece = size_t{1} << kPieceBits;
  std::vector<std::unique_ptr<char[]>> pieces_;
  size_t used_ = 0;
};

}  // namespace situla
