#include <cstdlib>
#include <string>

#include "common/base/base64.hpp"
#include "common/base/text.hpp"
#include "common/spec/json.hpp"
#include "tests/fuzz/target.hpp"

/// What everybody uses on foreign text before it is shown, sent or compared.
void situla::fuzz(std::string_view bytes) {
  const std::string shown = printable(bytes);
  if (printable(shown) != shown) std::abort();
  for (const char c : shown)
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') std::abort();
  // One text, nothing behind it, and what a reader gets is what was shown.
  const auto quoted = parse_json(json_quote(bytes));
  if (!quoted || quoted->as_text() == nullptr || *quoted->as_text() != shown) std::abort();
  if (decode_base64(encode_base64(bytes)) != bytes) std::abort();
  (void)decode_base64(bytes);
  if (unescape_octal(bytes).size() > bytes.size()) std::abort();

  std::vector<std::string> pieces;
  for (const std::string_view piece : split(bytes, ',')) pieces.emplace_back(piece);
  if (join(pieces, ",") != bytes) std::abort();
  if (const auto number = parse_unsigned(bytes); number && parse_unsigned(std::to_string(*number)) != number)
    std::abort();
  if (const auto size = parse_size(bytes); size && format_size(*size).empty()) std::abort();

  if (const auto json = parse_json(bytes)) {
    // What is written says the same as what was read.
    const std::string written = to_text(*json, {.ascii = true});
    const auto again = parse_json(written);
    if (!again || to_text(*again, {.ascii = true}) != written) std::abort();
  }
}
