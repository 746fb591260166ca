#include "hooks/run/container_environment.hpp"

#include <algorithm>
#include <array>

#include "common/base/text.hpp"
#include "hooks/mount/fstab.hpp"
#include "hooks/run/site_files.hpp"

namespace situla {
namespace {

/// COMPAT.md 2, last paragraph.
constexpr std::array<std::string_view, 19> kRemoved = {"PATH",
                                                       "LD_LIBRARY_PATH",
                                                       "LD_PRELOAD",
                                                       "SLURM_PROCID",
                                                       "SLURM_LOCALID",
                                                       "SLURM_TASK_PID",
                                                       "PMIX_RANK",
                                                       "PMI_FD",
                                                       "ENROOT_LIBRARY_PATH",
                                                       "ENROOT_SYSCONF_PATH",
                                                       "ENROOT_RUNTIME_PATH",
                                                       "ENROOT_CACHE_PATH",
                                                       "ENROOT_DATA_PATH",
                                                       "ENROOT_TEMP_PATH",
                                                       "ENROOT_ZSTD_OPTIONS",
                                                       "ENROOT_TRANSFER_RETRIES",
                                                       "ENROOT_CONNECT_TIMEOUT",
                                                       "ENROOT_MAX_CONNECTIONS",
                                                       "ENROOT_ALLOW_HTTP"};
constexpr std::array<std::string_view, 3> kLanguage = {"LANG", "LANGUAGE", "LC_ALL"};

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

void add_definition(Environment& environment, std::string_view line) {
  const auto pair = cut(line, '=');
  if (!pair || !is_variable_name(pair->first) || pair->first.starts_with("ENROOT_")) return;
  environment.set(pair->first, without_quotes(pair->second));
}

}  // namespace

Environment preparation_environment(const Environment& job) {
  Environment environment = job;
  for (const std::string_view name : kRemoved) environment.unset(name);
  return environment;
}

Environment without_host_language(const Environment& job, const std::vector<std::string>& keep) {
  Environment environment = job;
  for (const std::string_view name : kLanguage)
    if (std::find(keep.begin(), keep.end(), name) == keep.end()) environment.unset(name);
  return environment;
}

Environment expansion_environment(const Environment& host, const EnrootConfig& config, const std::string& rootfs) {
  Environment environment;
  // Of enroot's own variables the configuration counts: some of the host's may be false, which is as good as absent.
  for (const auto& [name, value] : host.entries())
    if (!name.starts_with("ENROOT_")) environment.set(name, value);
  environment.merge(config.exported());
  environment.set("ENROOT_ROOTFS", rootfs);
  return environment;
}

void add_definitions(Environment& environment, std::string_view text, const Environment& expansion) {
  for (const std::string_view raw : split(text, '\n')) {
    const size_t begin = std::min(raw.find_first_not_of(" \t\r"), raw.size());
    const std::string_view line = raw.substr(begin);
    if (line.empty() || line.front() == '#') continue;
    add_definition(environment, expand_braced(line, expansion));
  }
}

Result<Environment> assemble_environment(const RootDir& root, const EnrootConfig& config,
                                         const Environment& expansion) {
  Environment environment;
  if (const auto image = root.read_file("/etc/environment"))
    add_definitions(environment, *image, expansion);
  else if (image.error().kind() != ErrorKind::not_found)
    return fail(Error(image.error()).with_context("image environment"));
  TRY_ASSIGN(const std::vector<SiteFile> files, environment_files(config));
  for (const SiteFile& file : files) add_definitions(environment, file.text, expansion);
  // A host without a terminal passes none on, instead of an empty one that hides the login shell's default.
  if (environment.get("TERM") == std::string_view()) environment.unset("TERM");
  return environment;
}

void add_words(Environment& environment, const std::vector<std::string>& words, const Environment& host) {
  for (const std::string& word : words)
    add_definition(environment, word.find('=') == std::string::npos ? word + "=" + host.get_or(word, "") : word);
}

void add_literal_definitions(Environment& environment, std::string_view text) {
  for (const std::string_view raw : split(text, '\n')) {
    const size_t begin = std::min(raw.find_first_not_of(" \t\r"), raw.size());
    if (raw.substr(begin).starts_with('#')) continue;
    add_definition(environment, raw.substr(begin));
  }
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

Environment kept_variables(const Environment& host, const std::vector<std::string>& names) {
  Environment kept;
  for (const std::string& name : names)
    if (const auto value = host.get(name); value && !value->empty() && !name.starts_with("ENROOT_"))
      kept.set(name, *value);
  return kept;
}

}  // namespace situla
