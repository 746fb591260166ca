// How does a struct become bytes and come back, from one list of its fields? What is read is exactly what is written.
//
// A struct lists them in `static auto fields(auto& it) { return std::tie(it.one, it.other); }`: flags, numbers, texts,
// bytes, enums, structs, and optionals and lists of these. An enum says in `last_of(Enum)` which values it has.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <variant>
#include <vector>

#include "common/base/codec.hpp"
#include "common/base/result.hpp"

namespace situla {

/// What one kind of bytes is. Sizes are in bytes.
struct WireForm {
  std::string_view what;  ///< "message", for errors
  uint32_t version;       ///< changes with every change of a field
  size_t most_bytes;
  size_t most_text = SIZE_MAX;  ///< a longer text is cut when it is written
  bool nul_in_text = true;
};

class WireWriter {
 public:
  explicit WireWriter(const WireForm& form) : form_(form) { out_.u32(form.version); }
  [[nodiscard]] std::string take() { return out_.take(); }

  void put(bool flag) { out_.u8(flag ? 1 : 0); }
  void put(uint32_t number) { out_.u32(number); }
  void put(uint64_t number) { out_.u64(number); }
  void put(const std::string& text) { out_.text(std::string_view(text).substr(0, form_.most_text)); }
  template <size_t N>
  void put(const std::array<uint8_t, N>& bytes) {
    for (const uint8_t byte : bytes) out_.u8(byte);
  }
  template <typename T>
  void put(const std::optional<T>& item) {
    put(item.has_value());
    if (item) put(*item);
  }
  template <typename T>
  void put(const std::vector<T>& items) {
    put(static_cast<uint32_t>(items.size()));
    for (const T& item : items) put(item);
  }
  template <typename... T>
  void put(const std::variant<T...>& item) {
    out_.u8(static_cast<uint8_t>(item.index()));
    std::visit([this](const auto& chosen) { this->put(chosen); }, item);
  }
  template <typename T>
  void put(const T& item) {
    if constexpr (std::is_enum_v<T>)
      out_.u8(static_cast<uint8_t>(item));
    else if constexpr (!std::is_empty_v<T>)
      std::apply([this](const auto&... field) { (this->put(field), ...); }, T::fields(item));
  }

 private:
  const WireForm& form_;
  Encoder out_;
};

class WireReader {
 public:
  WireReader(std::string_view bytes, const WireForm& form) : form_(form), in_(bytes) {}
  [[nodiscard]] bool has_version() { return in_.u32() == form_.version && in_.ok(); }
  [[nodiscard]] bool finished() const { return in_.finished(); }

  void get(bool& flag) { flag = below(2) == 1; }
  void get(uint32_t& number) { number = in_.u32(); }
  void get(uint64_t& number) { number = in_.u64(); }
  void get(std::string& text) {
    text = in_.text();
    if (text.size() > form_.most_text || (!form_.nul_in_text && text.find('\0') != std::string::npos)) in_.refuse();
  }
  template <size_t N>
  void get(std::array<uint8_t, N>& bytes) {
    for (uint8_t& byte : bytes) byte = in_.u8();
  }
  template <typename T>
  void get(std::optional<T>& item) {
    bool there = false;
    get(there);
    if (there) get(item.emplace());
  }
  /// Grows with what is there, not with what is announced.
  template <typename T>
  void get(std::vector<T>& items) {
    for (uint32_t left = in_.u32(); left > 0 && in_.ok(); --left) get(items.emplace_back());
  }
  template <typename... T>
  void get(std::variant<T...>& item) {
    const size_t index = below(sizeof...(T));
    size_t candidate = 0;
    ((candidate++ == index ? get(item.template emplace<T>()) : void()), ...);
  }
  template <typename T>
  void get(T& item) {
    if constexpr (std::is_enum_v<T>)
      item = static_cast<T>(below(static_cast<size_t>(last_of(T())) + 1));
    else if constexpr (!std::is_empty_v<T>)
      std::apply([this](auto&... field) { (this->get(field), ...); }, T::fields(item));
  }

 private:
  size_t below(size_t end) {
    const uint8_t value = in_.u8();
    if (value >= end) in_.refuse();
    return value < end ? value : 0;
  }

  const WireForm& form_;
  Decoder in_;
};

template <typename T>
std::string to_wire(const T& item, const WireForm& form) {
  WireWriter writer(form);
  writer.put(item);
  return writer.take();
}

/// ErrorKind::corrupt for anything that to_wire() did not write.
template <typename T>
Result<T> from_wire(std::string_view bytes, const WireForm& form) {
  WireReader reader(bytes, form);
  if (!reader.has_version())
    return fail(Error(ErrorKind::corrupt, std::string(form.what) + " of another release")
                    .with_code(ErrorCode::installation)
                    .with_hint("the plugin and the programs under libexec must come from the same release"));
  T item;
  if (bytes.size() <= form.most_bytes) reader.get(item);
  if (!reader.finished()) return fail(ErrorKind::corrupt, std::string(form.what) + " of a wrong form");
  return item;
}

}  // namespace situla
