#include "hooks/run/rc_script.hpp"

#include "common/base/text.hpp"

namespace situla {
namespace {

constexpr std::string_view kRcLocal = "/etc/rc.local";

bool ends_path(std::string_view rest) {
  return rest.empty() || std::string_view(" \t\r\n;\"'`)]&|<>").find(rest.front()) != std::string_view::npos;
}

/// One word of a POSIX shell line: quotes and backslashes are removed, nothing is expanded.
std::string unquote_word(std::string_view text) {
  std::string word;
  char quote = '\0';
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != '\0') {
      if (c == quote)
        quote = '\0';
      else if (c == '\\' && quote == '"' && i + 1 < text.size() &&
               std::string_view("\\\"$`").find(text[i + 1]) != std::string_view::npos)
        word += text[++i];
      else
        word += c;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '\\' && i + 1 < text.size()) {
      word += text[++i];
    } else if (std::string_view(" \t;&|").find(c) != std::string_view::npos) {
      break;
    } else {
      word += c;
    }
  }
  return word;
}

}  // namespace

std::optional<std::string> redirect_rc_local(std::string_view script, std::string_view hook) {
  std::vector<std::string> lines;
  bool used = false;
  for (const std::string_view line : split(script, '\n')) {
    std::string redirected;
    std::string_view rest = line;
    const bool comment = trim(line).starts_with('#');
    for (size_t at = 0; !comment && (at = rest.find(kRcLocal)) != std::string_view::npos;) {
      const bool whole = ends_path(rest.substr(at + kRcLocal.size()));
      redirected += rest.substr(0, at);
      redirected += whole ? hook : kRcLocal;
      used = used || whole;
      rest.remove_prefix(at + kRcLocal.size());
    }
    redirected += rest;
    lines.push_back(std::move(redirected));
  }
  if (!used) return std::nullopt;
  return join(lines, "\n");
}

std::string variable_lines(const std::vector<std::string>& variables, const Environment& container) {
  std::string lines;
  for (const std::string& variable : variables) {
    const std::string name = variable.substr(0, variable.find('='));
    const auto value = container.get(name);
    if (!is_variable_name(name)) continue;
    lines += value ? "export " + name + "=" + shell_quote(*value) + "\n" : "unset " + name + "\n";
  }
  return lines;
}

std::optional<std::string> rc_directory(std::string_view script) {
  for (const std::string_view raw : split(script, '\n')) {
    std::string_view line = trim(raw);
    if (!line.starts_with("cd ")) continue;
    line = trim(line.substr(3));
    if (line.starts_with("-- ")) line = trim(line.substr(3));
    std::string directory = unquote_word(line);
    if (!directory.empty()) return directory;
  }
  return std::nullopt;
}

}  // namespace situla
