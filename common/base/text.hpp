// Small questions about strings that the standard library does not answer.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"

namespace situla {

/// Pieces between separators; "a,,b" gives three pieces, "" gives one empty piece.
std::vector<std::string_view> split(std::string_view text, char separator);
/// The same, without empty pieces.
std::vector<std::string_view> split_nonempty(std::string_view text, char separator);
/// Words separated by any run of blanks, tabs or newlines.
std::vector<std::string_view> split_words(std::string_view text);
/// Cuts at the first separator: {before, after}; nullopt if there is none.
std::optional<std::pair<std::string_view, std::string_view>> cut(std::string_view text, char separator);
std::string_view trim(std::string_view text);
bool starts_with_one_of(std::string_view text, std::span<const std::string_view> prefixes);
std::string to_lower(std::string_view text);
std::string join(const std::vector<std::string>& pieces, std::string_view separator);
/// At the end, unless it is there already.
void add_once(std::vector<std::string>& list, std::string text);
/// Blanks behind (flush left) or before (flush right) until it has `width` bytes; longer text stays as it is.
std::string flush_left(std::string_view text, size_t width);
std::string flush_right(std::string_view text, size_t width);

/// A whole decimal number without sign, blanks or leftovers.
std::optional<uint64_t> parse_unsigned(std::string_view text);
/// 1, true, yes, y, or 0, false, no, n.
std::optional<bool> parse_boolean(std::string_view text);
/// "64M", "2GiB", "512k", "1048576" -> bytes; binary units.
Result<uint64_t> parse_size(std::string_view text);
/// 1536 -> "1.5 KiB".
std::string format_size(uint64_t bytes);

/// \040 and the like, as fstab(5) and /proc/PID/mountinfo write blanks: three octal digits are a byte.
std::string unescape_octal(std::string_view field);
/// The text in single quotes where a POSIX shell needs them; safe to paste.
std::string shell_quote(std::string_view text);
/// Control characters and invalid UTF-8 as \xNN, so that foreign text cannot write to a terminal or forge a log line.
std::string printable(std::string_view text);
/// A JSON string, quotes included, of what printable() shows of it.
std::string json_quote(std::string_view text);
/// Whether it has the curly quotation marks that word processors and web pages put in place of ' and ": to a shell they
/// are letters.
bool has_curly_quotes(std::string_view text);
/// For the hint of what has them.
constexpr std::string_view kPlainQuotes =
    "it has curly quotation marks, which a shell does not take away: write \" or \'";
/// printable() of the first 300 bytes, with "..." where there are more. For all that a registry or an image says.
std::string excerpt(std::string_view text);

/// Insertions, deletions, replacements, and neighbours exchanged, that make one text of the other.
size_t edit_distance(std::string_view a, std::string_view b);

/// The word that was most likely meant, for "did you mean"; nullopt when none is near. Case does not count.
std::optional<std::string_view> closest(std::string_view word, std::span<const std::string_view> known);

/// For the hint of an unknown word: "did you mean \"mount\"? known keys: mount, store_path"; the first part only when
/// a word is near. `what` is "known keys".
std::string suggestion(std::string_view word, std::span<const std::string_view> known, std::string_view what);

std::string to_hex(const uint8_t* data, size_t size);

}  // namespace situla
