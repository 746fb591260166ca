#include "common/base/text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>

namespace situla {
namespace {

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/// Length of the valid UTF-8 sequence at the start of text, or 0. Overlong forms and surrogates are invalid (RFC 3629).
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto continues = [&](size_t i) { return i < text.size() && (byte(i) & 0xC0U) == 0x80U; };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return continues(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    if (!continues(1) || !continues(2)) return 0;
    if (first == 0xE0 && byte(1) < 0xA0) return 0;
    if (first == 0xED && byte(1) > 0x9F) return 0;
    return 3;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    if (!continues(1) || !continues(2) || !continues(3)) return 0;
    if (first == 0xF0 && byte(1) < 0x90) return 0;
    if (first == 0xF4 && byte(1) > 0x8F) return 0;
    return 4;
  }
  return 0;
}

}  // namespace

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  size_t begin = 0;
  for (size_t end = 0; (end = text.find(separator, begin)) != std::string_view::npos; begin = end + 1)
    pieces.push_back(text.substr(begin, end - begin));
  pieces.push_back(text.substr(begin));
  return pieces;
}

std::vector<std::string_view> split_nonempty(std::string_view text, char separator) {
  std::vector<std::string_view> pieces = split(text, separator);
  std::erase_if(pieces, [](std::string_view piece) { return piece.empty(); });
  return pieces;
}

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  size_t begin = 0;
  while (begin < text.size()) {
    if (is_blank(text[begin])) {
      ++begin;
      continue;
    }
    size_t end = begin;
    while (end < text.size() && !is_blank(text[end])) ++end;
    words.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

std::optional<std::pair<std::string_view, std::string_view>> cut(std::string_view text, char separator) {
  const size_t at = text.find(separator);
  if (at == std::string_view::npos) return std::nullopt;
  return std::pair{text.substr(0, at), text.substr(at + 1)};
}

bool starts_with_one_of(std::string_view text, std::span<const std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return text.starts_with(prefix); });
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

std::string to_lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

void add_once(std::vector<std::string>& list, std::string text) {
  if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(std::move(text));
}

std::string join(const std::vector<std::string>& pieces, std::string_view separator) {
  std::string text;
  for (const std::string& piece : pieces) {
    if (&piece != pieces.data()) text += separator;
    text += piece;
  }
  return text;
}

std::string flush_left(std::string_view text, size_t width) {
  return std::string(text) + std::string(width - std::min(width, text.size()), ' ');
}

std::string flush_right(std::string_view text, size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + std::string(text);
}

std::optional<uint64_t> parse_unsigned(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<bool> parse_boolean(std::string_view text) {
  if (text == "1" || text == "true" || text == "yes" || text == "y") return true;
  if (text == "0" || text == "false" || text == "no" || text == "n") return false;
  return std::nullopt;
}

Result<uint64_t> parse_size(std::string_view text) {
  static constexpr std::string_view kUnits = "kmgt";
  const std::string lower = to_lower(trim(text));
  const size_t digits = lower.find_first_not_of("0123456789");
  const auto number = parse_unsigned(std::string_view(lower).substr(0, digits));
  std::string_view unit =
      digits == std::string::npos ? std::string_view() : trim(std::string_view(lower).substr(digits));
  unsigned shift = 0;
  if (!unit.empty() && kUnits.find(unit.front()) != std::string_view::npos) {
    shift = 10 * (static_cast<unsigned>(kUnits.find(unit.front())) + 1);
    unit.remove_prefix(1);
    if (unit == "ib" || unit == "b") unit = "";
  } else if (unit == "b") {
    unit = "";
  }
  if (!number || !unit.empty() || *number > (UINT64_MAX >> shift))
    return fail(Error(ErrorKind::usage, "size '" + printable(text) + "' is not a number of bytes")
                    .with_code(ErrorCode::option)
                    .with_hint("write it as 1048576, 64MiB or 200GiB"));
  return *number << shift;
}

std::string format_size(uint64_t bytes) {
  static constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits.at(unit));
  return buffer.data();
}

std::string unescape_octal(std::string_view field) {
  const auto octal = [](char c) { return c >= '0' && c <= '7'; };
  std::string text;
  for (size_t i = 0; i < field.size(); ++i) {
    if (field[i] == '\\' && i + 3 < field.size() && field[i + 1] <= '3' && octal(field[i + 1]) && octal(field[i + 2]) &&
        octal(field[i + 3])) {
      text += static_cast<char>((field[i + 1] - '0') * 64 + (field[i + 2] - '0') * 8 + (field[i + 3] - '0'));
      i += 3;
    } else {
      text += field[i];
    }
  }
  return text;
}

std::string shell_quote(std::string_view text) {
  static constexpr std::string_view kSafe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%_-+=:,./";
  if (!text.empty() && text.find_first_not_of(kSafe) == std::string_view::npos) return std::string(text);
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'')
      quoted += "'\\''";
    else
      quoted += c;
  }
  return quoted + "'";
}

std::string printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const auto first = static_cast<unsigned char>(text.front());
    const size_t length = utf8_length(text);
    // C1 controls (U+0080..U+009F) are control sequences to some terminals.
    const bool c1 = length == 2 && first == 0xC2 && static_cast<unsigned char>(text[1]) < 0xA0;
    if (length == 0 || c1 || first < 0x20 || first == 0x7F) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\x%02x", first);
      shown += escape.data();
      text.remove_prefix(1);
      continue;
    }
    shown += text.substr(0, length);
    text.remove_prefix(length);
  }
  return shown;
}

std::string json_quote(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : printable(text)) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

std::string excerpt(std::string_view text) {
  constexpr size_t kMost = 300;
  return text.size() <= kMost ? printable(text) : printable(text.substr(0, kMost)) + "...";
}

bool has_curly_quotes(std::string_view text) {
  // U+2018 to U+201F, in UTF-8.
  for (size_t at = 0; (at = text.find("\xe2\x80", at)) != std::string_view::npos; ++at)
    if (at + 2 < text.size() && static_cast<uint8_t>(text[at + 2]) >= 0x98 &&
        static_cast<uint8_t>(text[at + 2]) <= 0x9f)
      return true;
  return false;
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0U : 1U)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::optional<std::string_view> closest(std::string_view word, std::span<const std::string_view> known) {
  constexpr size_t kLongest = 64;  // the cost grows with the product of the lengths, and keys are short
  if (word.empty() || word.size() > kLongest) return std::nullopt;
  const std::string wanted = to_lower(word);
  std::optional<std::string_view> best;
  size_t least = wanted.size() / 3 + 2;  // from here on the words have little to do with each other
  for (const std::string_view name : known) {
    const size_t distance = edit_distance(wanted, to_lower(name));
    if (distance >= least || distance >= name.size()) continue;
    least = distance;
    best = name;
  }
  return best;
}

std::string suggestion(std::string_view word, std::span<const std::string_view> known, std::string_view what) {
  const auto near = closest(word, known);
  const std::string question = near ? "did you mean \"" + std::string(*near) + "\"? " : "";
  return question + std::string(what) + ": " + join({known.begin(), known.end()}, ", ");
}

std::string to_hex(const uint8_t* data, size_t size) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * size);
  for (size_t i = 0; i < size; ++i) {
    hex += kDigits[data[i] >> 4U];
    hex += kDigits[data[i] & 15U];
  }
  return hex;
}

}  // namespace situla
