// Which content exactly? A sha256 digest as OCI descriptors spell it: "sha256:" and 64 lower-case hex digits.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>

#include "common/base/result.hpp"

namespace situla {

/// OCI image-spec, descriptor.md "Digests". Only sha256 is accepted: it is the one algorithm registries must support.
class Digest {
 public:
  static constexpr size_t kBytes = 32;

  Digest() = default;
  explicit Digest(const std::array<uint8_t, kBytes>& bytes) : bytes_(bytes) {}

  /// Parses "sha256:<64 lower-case hex>". ErrorKind::usage otherwise.
  static Result<Digest> parse(std::string_view text);
  /// Parses the 64 hex digits alone.
  static Result<Digest> parse_hex(std::string_view hex);

  [[nodiscard]] std::string hex() const;
  /// "sha256:<hex>".
  [[nodiscard]] std::string text() const { return "sha256:" + hex(); }
  [[nodiscard]] const std::array<uint8_t, kBytes>& bytes() const { return bytes_; }

  static auto fields(auto& digest) { return std::tie(digest.bytes_); }
  friend auto operator<=>(const Digest&, const Digest&) = default;  // NOLINT(modernize-use-nullptr)

 private:
  std::array<uint8_t, kBytes> bytes_{};
};

/// What a name of an image means.
struct NamedManifest {
  Digest named;     ///< for every platform: an index, or the manifest itself
  Digest manifest;  ///< for one of them

  static auto fields(auto& it) { return std::tie(it.named, it.manifest); }
  friend bool operator==(const NamedManifest&, const NamedManifest&) = default;
};

}  // namespace situla
