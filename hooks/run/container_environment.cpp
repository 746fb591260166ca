#include "hooks/run/container_environment.hpp"

#include <algorithm>
#include <array>

#include "common/base/text.hpp"
#include "hooks/scripts/definitions.hpp"
#include "hooks/scripts/site_files.hpp"

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

Result<void> add_file_variables(Environment& environment, const std::vector<std::string>& variables,
                                const Environment& host) {
  const Environment before = environment;
  const auto lookup = [&](std::string_view name) -> std::optional<std::string> {
    const auto value = before.has(name) ? before.get(name) : host.get(name);
    return value ? std::optional<std::string>(*value) : std::nullopt;
  };
  for (const std::string& variable : variables) {
    const auto [name, raw] = cut(variable, '=').value_or(std::pair(std::string_view(variable), std::string_view()));
    if (name.starts_with("ENROOT_")) continue;  // as in every other file
    auto value = expand_references(raw, lookup);
    if (!value)
      return fail(std::move(value)
                      .error()
                      .with_context("--environment: env " + printable(name))
                      .with_code(ErrorCode::environment_file));
    if (value->empty())
      environment.unset(name);
    else
      environment.set(name, *value);
  }
  return {};
}

Environment kept_variables(const Environment& host, const std::vector<std::string>& names) {
  Environment kept;
  for (const std::string& name : names)
    if (const auto value = host.get(name); value && !value->empty() && !name.starts_with("ENROOT_"))
      kept.set(name, *value);
  return kept;
}

}  // namespace situla
