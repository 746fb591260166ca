#include "hooks/scripts/definitions.hpp"

#include <algorithm>

#include "common/base/text.hpp"
#include "hooks/mount/fstab.hpp"

namespace situla {
namespace {

bool is_quote(char c) {
  return c == '"' || c == '\'';
}

/// `"value"` and `'value'` lose their quotes; blanks after the closing one go with it. Anything else stays as it is.
std::string_view without_quotes(std::string_view value) {
  std::string_view trimmed = value;
  while (!trimmed.empty() && (trimmed.back() == ' ' || trimmed.back() == '\t' || trimmed.back() == '\r'))
    trimmed.remove_suffix(1);
  if (trimmed.size() < 2 || !is_quote(trimmed.front()) || !is_quote(trimmed.back())) return value;
  return trimmed.substr(1, trimmed.size() - 2);
}

/// Without comments, and blanks that begin a line.
std::vector<std::string_view> definition_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  for (const std::string_view raw : split(text, '\n')) {
    const std::string_view line = raw.substr(std::min(raw.find_first_not_of(" \t\r"), raw.size()));
    if (!line.empty() && line.front() != '#') lines.push_back(line);
  }
  return lines;
}

}  // namespace

Environment expansion_environment(const Environment& host, const EnrootConfig& config, const std::string& rootfs) {
  Environment environment;
  // Of enroot's own variables the configuration counts: some of the host's may be false, which is as good as absent.
  for (const auto& [name, value] : host.entries())
    if (!name.starts_with("ENROOT_")) environment.set(name, value);
  environment.merge(config.exported());
  environment.set("ENROOT_ROOTFS", rootfs);
  return environment;
}

void add_definition(Environment& environment, std::string_view line) {
  const auto pair = cut(line, '=');
  if (!pair || !is_variable_name(pair->first) || pair->first.starts_with("ENROOT_")) return;
  environment.set(pair->first, without_quotes(pair->second));
}

void add_definitions(Environment& environment, std::string_view text, const Environment& expansion) {
  for (const std::string_view line : definition_lines(text))
    add_definition(environment, expand_braced(line, expansion));
}

void add_literal_definitions(Environment& environment, std::string_view text) {
  for (const std::string_view line : definition_lines(text)) add_definition(environment, line);
}

std::string definitions_text(const Environment& environment) {
  std::string text;
  for (const auto& [name, value] : environment.entries())
    if (value.find('\n') == std::string::npos) text += name + "=" + value + "\n";
  return text;
}

Environment definitions_taken_back(std::string_view text, const Environment& before) {
  Environment raw;
  for (const std::string_view line : split(text, '\n'))
    if (const auto pair = cut(line, '=')) raw.set(pair->first, pair->second);
  Environment after;
  add_literal_definitions(after, text);
  for (const auto& [name, value] : before.entries())
    // What nobody touched, and what a line cannot hold, stays as it was.
    if (raw.get(name) == value || value.find('\n') != std::string::npos) after.set(name, value);
  return after;
}

}  // namespace situla
