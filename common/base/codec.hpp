// How are values put into bytes and taken out again between processes of one node? Little-endian, length-prefixed,
// bounds-checked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace situla {

class Encoder {
 public:
  void u8(uint8_t value) { bytes_.push_back(static_cast<char>(value)); }
  void u32(uint32_t value) {
    for (unsigned shift = 0; shift < 32; shift += 8) u8(static_cast<uint8_t>(value >> shift));
  }
  void u64(uint64_t value) {
    u32(static_cast<uint32_t>(value));
    u32(static_cast<uint32_t>(value >> 32U));
  }
  void text(std::string_view value) {
    u32(static_cast<uint32_t>(value.size()));
    bytes_ += value;
  }
  /// What was put in since the last time.
  [[nodiscard]] std::string take() { return std::exchange(bytes_, {}); }

 private:
  std::string bytes_;
};

/// Reads what an Encoder wrote. Any overrun makes it fail for good: check ok() (or finished()) once, at the end; the
/// values read from a failed decoder are zero or empty and must not be used.
class Decoder {
 public:
  explicit Decoder(std::string_view bytes) : bytes_(bytes) {}

  uint8_t u8() {
    if (bytes_.empty()) {
      ok_ = false;
      return 0;
    }
    const auto value = static_cast<uint8_t>(bytes_.front());
    bytes_.remove_prefix(1);
    return value;
  }
  uint32_t u32() {
    uint32_t value = 0;
    for (unsigned shift = 0; shift < 32; shift += 8) value |= static_cast<uint32_t>(u8()) << shift;
    return ok_ ? value : 0;
  }
  uint64_t u64() {
    const uint64_t low = u32();
    return low | static_cast<uint64_t>(u32()) << 32U;
  }
  std::string_view text() {
    const uint32_t size = u32();
    if (!ok_ || size > bytes_.size()) {
      ok_ = false;
      return {};
    }
    const std::string_view value = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return value;
  }

  /// What was read cannot be meant.
  void refuse() { ok_ = false; }
  [[nodiscard]] bool ok() const { return ok_; }
  /// Bytes that were not read yet.
  [[nodiscard]] size_t left() const { return bytes_.size(); }
  /// Everything was read, and nothing is left over.
  [[nodiscard]] bool finished() const { return ok_ && bytes_.empty(); }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

}  // namespace situla
