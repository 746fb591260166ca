#include "hooks/cli/report/manual.hpp"

#include <string_view>
#include <vector>

#include "common/base/text.hpp"

namespace situla::cli {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kManual =
#include "hooks/cli/errors_manual.inc"
    ;

/// The lines between its heading and the next one.
std::string_view source_of(ErrorCode code) {
  if (code == ErrorCode::none) return {};
  const std::string heading = "\n## " + std::string(to_string(code)) + "\n";
  const size_t at = kManual.find(heading);
  if (at == kManual.npos) return {};
  std::string_view section = kManual.substr(at + heading.size());
  section = section.substr(0, section.find("\n#"));
  return trim(section);
}

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/// Without the marks of scdoc(5): *bold*, _underlined_ (not within a word), a backslash before what is meant itself.
std::string without_marks(std::string_view source) {
  std::string text;
  for (size_t i = 0; i < source.size(); ++i) {
    const char c = source[i];
    if (c == '\\' && i + 1 < source.size()) {
      text += source[++i];
      continue;
    }
    const bool within = i > 0 && i + 1 < source.size() && is_word(source[i - 1]) && is_word(source[i + 1]);
    if (c == '*' || (c == '_' && !within)) continue;
    text += c;
  }
  return text;
}

std::string wrapped(std::string_view paragraph, size_t width) {
  std::string text;
  size_t column = 0;
  for (const std::string_view line : split_nonempty(paragraph, '\n'))
    for (const std::string_view word : split_nonempty(line, ' ')) {
      const bool fits = column == 0 || column + 1 + word.size() <= width;
      if (column != 0) text += fits ? ' ' : '\n';
      column = fits && column != 0 ? column + 1 + word.size() : word.size();
      text += word;
    }
  return text + '\n';
}

}  // namespace

std::string manual_section(ErrorCode code, size_t width) {
  std::string text;
  std::string_view rest = source_of(code);
  while (!rest.empty()) {
    const size_t end = rest.find("\n\n");
    text += (text.empty() ? "" : "\n") + wrapped(without_marks(rest.substr(0, end)), width);
    rest = end == rest.npos ? std::string_view() : trim(rest.substr(end));
  }
  return text;
}

std::string manual_summary(ErrorCode code) {
  const std::string text = manual_section(code, SIZE_MAX);
  size_t end = 0;
  // A dot may stand within a name.
  do end = text.find_first_of(".:\n", end + 1);
  while (end + 1 < text.size() && text[end] != '\n' && text[end + 1] != ' ' && text[end + 1] != '\n');
  return text.substr(0, end);
}

std::string_view errors_manual() {
  return kManual;
}

}  // namespace situla::cli
