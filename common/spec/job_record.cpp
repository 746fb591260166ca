#include "common/spec/job_record.hpp"

#include <algorithm>

#include "common/base/text.hpp"

namespace situla {
namespace {

constexpr std::string_view kBegin = "situla: ";
constexpr std::string_view kCut = "...";
constexpr size_t kMostName = 256;  // bytes, of an image's
constexpr size_t kMostWord = 512;  // bytes
constexpr std::string_view kDigestBegin = "sha256:";
constexpr size_t kDigestDigits = 64;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// Of ASCII, whatever the locale says.
bool is_plain(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         std::string_view("._-/:@#+~").find(c) != std::string_view::npos;
}

std::string escape_name(std::string_view name) {
  std::string escaped;
  for (const char c : name) {
    if (is_plain(c)) {
      escaped += c;
      continue;
    }
    const auto byte = static_cast<uint8_t>(c);
    escaped += "%" + to_hex(&byte, 1);
  }
  if (escaped.size() > kMostName) {
    size_t end = kMostName - kCut.size();
    // Not in the middle of one.
    for (const size_t back : {size_t{1}, size_t{2}})
      if (escaped[end - back] == '%') end -= back;
    escaped = escaped.substr(0, end) + std::string(kCut);
  }
  return escaped.empty() ? "-" : escaped;
}

bool is_digest(std::string_view text) {
  if (!text.starts_with(kDigestBegin) || text.size() != kDigestBegin.size() + kDigestDigits) return false;
  text.remove_prefix(kDigestBegin.size());
  return std::all_of(text.begin(), text.end(), [](char c) { return is_digit(c) || (c >= 'a' && c <= 'f'); });
}

/// "situla: IMAGE sha256:... ", or without a digest.
std::string_view identity_of(std::string_view word) {
  const size_t name_end = word.find(' ', kBegin.size());
  if (name_end == std::string_view::npos) return word;
  const size_t next_end = word.find(' ', name_end + 1);
  const bool has_digest =
      next_end != std::string_view::npos && is_digest(word.substr(name_end + 1, next_end - name_end - 1));
  return word.substr(0, (has_digest ? next_end : name_end) + 1);
}

bool is_number(std::string_view text) {
  constexpr size_t kMostDigits = 10;
  return !text.empty() && text.size() <= kMostDigits && std::all_of(text.begin(), text.end(), is_digit);
}

}  // namespace

std::string job_record_word(const ImageRecord& record) {
  std::string word = std::string(kBegin) + escape_name(record.image);
  if (is_digest(record.digest)) word += " " + record.digest;
  if (record.bytes != 0) {
    std::string size = format_size(record.bytes);
    std::erase(size, ' ');
    word += " " + size;
  }
  return word + " " + escape_name(record.source) + ";";
}

bool is_job_record_word(std::string_view text) {
  if (!text.starts_with(kBegin) || !text.ends_with(';') || text.size() > kMostWord) return false;
  text.remove_prefix(kBegin.size());
  text.remove_suffix(1);
  const auto parts = split(text, ' ');
  constexpr size_t kFewest = 2, kMost = 4;  // image, digest, size, source
  return parts.size() >= kFewest && parts.size() <= kMost &&
         std::all_of(parts.begin(), parts.end(), [](std::string_view part) {
           return !part.empty() &&
                  std::all_of(part.begin(), part.end(), [](char c) { return is_plain(c) || c == '%'; });
         });
}

bool says_image(std::string_view comment, std::string_view word) {
  return comment.find(identity_of(word)) != std::string_view::npos;
}

Result<std::string> add_image(std::string_view comment, std::string_view word) {
  if (!is_job_record_word(word)) return fail(ErrorKind::usage, "it is no word for a job's record");
  if (comment.starts_with("+="))
    return fail(Error(ErrorKind::failure, "the comment begins with +=, which Slurm takes for something to be added")
                    .with_code(ErrorCode::slurm));
  std::string longer = std::string(comment) + (comment.empty() ? "" : " ") + std::string(word);
  if (longer.size() <= kMostJobComment) return longer;
  return fail(Error(ErrorKind::no_space, "there is no room: Slurm takes " + std::to_string(kMostJobComment) +
                                             " bytes, and the comment would have " + std::to_string(longer.size()))
                  .with_code(ErrorCode::slurm));
}

bool is_job_number(std::string_view text) {
  const size_t mark = text.find_first_of("_+");
  return is_number(text.substr(0, mark)) && (mark == std::string_view::npos || is_number(text.substr(mark + 1)));
}

}  // namespace situla
