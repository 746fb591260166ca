#include "common/spec/digest.hpp"

#include "common/base/text.hpp"

namespace situla {
namespace {

constexpr std::string_view kAlgorithmPrefix = "sha256:";
constexpr std::string_view kDigits = "0123456789abcdef";

}  // namespace

Result<Digest> Digest::parse_hex(std::string_view hex) {
  if (hex.size() != 2 * kBytes)
    return fail(Error(ErrorKind::usage, "digest '" + excerpt(hex) + "' does not have 64 hexadecimal digits")
                    .with_code(ErrorCode::image_name));
  std::array<uint8_t, kBytes> bytes{};
  for (size_t i = 0; i < kBytes; ++i) {
    const size_t high = kDigits.find(hex[2 * i]);
    const size_t low = kDigits.find(hex[2 * i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos)
      return fail(Error(ErrorKind::usage, "digest '" + excerpt(hex) + "' is not in lower-case hexadecimal")
                      .with_code(ErrorCode::image_name));
    bytes.at(i) = static_cast<uint8_t>(high * 16 + low);
  }
  return Digest(bytes);
}

Result<Digest> Digest::parse(std::string_view text) {
  if (!text.starts_with(kAlgorithmPrefix))
    return fail(Error(ErrorKind::usage, "digest '" + excerpt(text) + "' is not a sha256 digest")
                    .with_code(ErrorCode::image_name)
                    .with_hint("write it as sha256:<64 lower-case hexadecimal digits>"));
  return parse_hex(text.substr(kAlgorithmPrefix.size()));
}

std::string Digest::hex() const {
  return to_hex(bytes_.data(), bytes_.size());
}

}  // namespace situla
