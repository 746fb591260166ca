// Where do a million records live? In pieces of one size, so that growing neither copies them nor needs room for them
// twice.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

namespace situla {

/// Append only. References stay valid.
template <typename T>
class PieceList {
 public:
  T& push_back(const T& value) {
    if ((size_ & kMask) == 0) pieces_.push_back(std::make_unique<Piece>());
    T& place = (*pieces_.back())[size_ & kMask];
    ++size_;
    return place = value;
  }
  [[nodiscard]] T& operator[](size_t index) { return (*pieces_[index >> kBits])[index & kMask]; }
  [[nodiscard]] const T& operator[](size_t index) const { return (*pieces_[index >> kBits])[index & kMask]; }
  [[nodiscard]] size_t size() const { return size_; }

 private:
  static constexpr unsigned kBits = 12;
  static constexpr size_t kMask = (size_t{1} << kBits) - 1;
  using Piece = std::array<T, kMask + 1>;
  std::vector<std::unique_ptr<Piece>> pieces_;
  size_t size_ = 0;
};

}  // namespace situla
