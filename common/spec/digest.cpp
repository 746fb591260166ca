#include "common/spec/digest.hpp"

#include "common/base/excerpt.hpp"
#include "common/base/text.hpp"

namespace situla {
namespace {

constexpr std::string_view kAlgorithmPrefix = "sha256:";

int nibble(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

Result<Digest> Digest::parse_hex(std::string_view hex) {
  if (hex.size() != 2 * kBytes)
    return fail(ErrorKind::usage, "digest '" + excerpt(hex) + "' does not have 64 hexadecimal digits");
  std::array<uint8_t, kBytes> bytes{};
  for (size_t i = 0; i < kBytes; ++i) {
    const int high = nibble(hex[2 * i]);
    const int low = nibble(hex[2 * i + 1]);
    if (high < 0 || low < 0)
      return fail(ErrorKind::usage, "digest '" + excerpt(hex) + "' is not in lower-case hexadecimal");
    bytes.at(i) = static_cast<uint8_t>(high * 16 + low);
  }
  return Digest(bytes);
}

Result<Digest> Digest::parse(std::string_view text) {
  if (!text.starts_with(kAlgorithmPrefix))
    return fail(Error(ErrorKind::usage, "digest '" + excerpt(text) + "' is not a sha256 digest")
                    .with_hint("write it as sha256:<64 lower-case hexadecimal digits>"));
  return parse_hex(text.substr(kAlgorithmPrefix.size()));
}

std::string Digest::hex() const {
  return to_hex(bytes_.data(), bytes_.size());
}

}  // namespace situla
