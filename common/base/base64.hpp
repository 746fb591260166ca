// How do bytes travel where only text may? Base64 (RFC 4648, 4).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace situla {

std::string encode_base64(std::string_view bytes);
/// nullopt when it is not base64; padding may be missing.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace situla
