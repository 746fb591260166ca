#include "hooks/config/enroot_config.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <set>

#include <fcntl.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/socket.hpp"
#include "common/sys/users.hpp"
#include "hooks/config/config_lines.hpp"

namespace situla {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 20U;
constexpr size_t kMaxOutputBytes = size_t{4} << 20U;

/// enroot's defaults, apart from directories (below) and ENROOT_SQUASH_OPTIONS: the importer picks its own compressor
/// unless a site asks for one.
constexpr std::array<std::pair<std::string_view, std::string_view>, 24> kDefaults = {{
    {"ENROOT_LIBRARY_PATH", "/usr/lib/enroot"},
    {"ENROOT_GZIP_PROGRAM", "gzip"},
    {"ENROOT_ZSTD_OPTIONS", "-1"},
    {"ENROOT_MAX_CONNECTIONS", "10"},
    {"ENROOT_CONNECT_TIMEOUT", "30"},
    {"ENROOT_TRANSFER_TIMEOUT", "0"},
    {"ENROOT_STALL_TIMEOUT", "60"},
    {"ENROOT_STALL_RATE", "1024"},
    {"ENROOT_TRANSFER_RETRIES", "0"},
    {"ENROOT_LOGIN_SHELL", "yes"},
    {"ENROOT_ALLOW_SUPERUSER", "no"},
    {"ENROOT_ALLOW_HTTP", "no"},
    {"ENROOT_ROOTFS_WRITABLE", "no"},
    {"ENROOT_NATIVE_OVERLAYFS", "no"},
    {"ENROOT_REMAP_ROOT", "no"},
    {"ENROOT_UNSHARE_NET", "no"},
    {"ENROOT_UNSHARE_PID", "no"},
    {"ENROOT_UNSHARE_IPC", "no"},
    {"ENROOT_UNSHARE_UTS", "no"},
    {"ENROOT_MOUNT_HOME", "no"},
    {"ENROOT_RESTRICT_DEV", "no"},
    {"ENROOT_BUNDLE_ALL", "no"},
    {"ENROOT_BUNDLE_CHECKSUM", "no"},
    {"ENROOT_FORCE_OVERRIDE", "no"},
}};

/// What people write for yes. enroot takes anything that is not kFalse for it.
constexpr std::array<std::string_view, 14> kTrue = {"y",    "Y",    "yes",  "Yes", "YES", "t",  "T",
                                                    "true", "True", "TRUE", "1",   "on",  "On", "ON"};
constexpr std::array<std::string_view, 4> kMeantFalse = {"0", "off", "Off", "OFF"};
constexpr std::array<std::string_view, 10> kFalse = {"n", "no", "N", "No", "NO", "f", "F", "false", "False", "FALSE"};

template <typename Words>
bool is_one_of(const Words& words, std::string_view value) {
  return std::find(words.begin(), words.end(), value) != words.end();
}

bool is_false(std::string_view value) {
  return is_one_of(kFalse, value);
}

void parse_file(const std::string& path, std::vector<ConfigLine>& lines, LogSink& log) {
  const Result<std::string> content = read_file(path, kMaxFileBytes);
  if (!content) {
    if (content.error().kind() != ErrorKind::not_found) log.warning("ignoring " + content.error().message());
    return;
  }
  for (ConfigLine& line : parse_config_lines(*content, path, log)) lines.push_back(std::move(line));
}

/// enroot.conf first, then enroot.conf.d/*.conf in the order a shell glob gives.
std::vector<ConfigLine> read_lines(const std::string& sysconf, LogSink& log) {
  namespace fs = std::filesystem;
  std::vector<ConfigLine> lines;
  parse_file(sysconf + "/enroot.conf", lines, log);
  std::vector<std::string> drop_ins;
  std::error_code error;
  for (fs::directory_iterator it(sysconf + "/enroot.conf.d", error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.ends_with(".conf") && !name.starts_with('.')) drop_ins.push_back(it->path().string());
  }
  std::sort(drop_ins.begin(), drop_ins.end());
  for (const std::string& path : drop_ins) parse_file(path, lines, log);
  return lines;
}

/// Values are data on descriptor 3, never part of the program text; each is evaluated once, in a subshell that may fail
/// alone.
constexpr std::string_view kEvaluator = R"(
while IFS= read -r -u 3 -d '' key && IFS= read -r -u 3 -d '' raw; do
  status=0
  if [ -z "${!key-}" ]; then
    value=$(eval "echo ${raw}" </dev/null 3<&-) || status=$?
    export "${key}=${value}"
  fi
  printf '%s\0%s\0' "${status}" "${!key}"
done
)";

Result<std::string> run_evaluator(const std::string& input, const Environment& environment) {
  TRY_ASSIGN(UniqueFd data, sealed_memory("enroot.conf", input));
  TRY_ASSIGN(auto pipe, make_pipe());
  auto& [reader, writer] = pipe;

  Environment clean = environment;
  clean.unset("BASH_ENV");
  clean.unset("ENV");
  SpawnOptions options;
  options.program = "/bin/bash";
  options.arguments = {"bash", "--norc", "--noprofile", "-c", std::string(kEvaluator)};
  options.environment = clean.strings();
  options.fds = {{writer.get(), STDOUT_FILENO}, {STDERR_FILENO, STDERR_FILENO}, {data.get(), 3}};
  TRY_ASSIGN(Child shell, spawn(options));
  writer.reset();
  TRY_ASSIGN(std::string output, read_all(reader.get(), kMaxOutputBytes));
  TRY_ASSIGN(const ExitStatus status, shell.wait());
  if (!status.success())
    return fail(Error(ErrorKind::failure, "the shell " + status.text()).with_code(ErrorCode::enroot_config));
  return output;
}

/// After each line: the first one that gives its key a value is the one that counts.
void note_use(ConfigLine& line, std::string_view value, std::set<std::string>& settled) {
  line.used = !value.empty() && settled.insert(line.key).second;
}

/// The keys that the environment has, against which files have no say.
std::set<std::string> given_keys(const Environment& environment) {
  std::set<std::string> keys;
  for (const auto& [name, value] : environment.entries())
    if (!value.empty()) keys.insert(name);
  return keys;
}

/// One shell for all lines, because a value may use keys set before it.
Result<void> evaluate_in_shell(std::vector<ConfigLine>& lines, Environment& environment, LogSink& log) {
  std::string input;
  for (const ConfigLine& line : lines) input += line.key + '\0' + line.raw + '\0';
  TRY_ASSIGN(const std::string output, run_evaluator(input, environment));
  std::vector<std::string_view> fields = split(output, '\0');
  if (fields.size() != lines.size() * 2 + 1)
    return fail(Error(ErrorKind::corrupt, "the shell answered out of order").with_code(ErrorCode::enroot_config));
  std::set<std::string> settled = given_keys(environment);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (fields[2 * i] != "0")
      log.warning(lines[i].where + ": evaluating the value of " + lines[i].key + " exited with return code " +
                  std::string(fields[2 * i]));
    note_use(lines[i], fields[2 * i + 1], settled);
    environment.set(lines[i].key, fields[2 * i + 1]);
  }
  return {};
}

Result<void> evaluate(std::vector<ConfigLine>& lines, Environment& environment, LogSink& log) {
  Environment result = environment;
  std::set<std::string> settled = given_keys(environment);
  for (ConfigLine& line : lines) {
    if (!result.get_or(line.key, "").empty()) continue;
    const std::optional<std::string> value = evaluate_plainly(line.raw, result);
    if (!value) return evaluate_in_shell(lines, environment, log);
    note_use(line, *value, settled);
    result.set(line.key, *value);
  }
  environment = std::move(result);
  return {};
}

std::string home_of_caller() {
  const auto user = find_user(getuid());
  return user && *user ? (*user)->home : "/";
}

/// HOME and the XDG base directories, which configuration files use freely, defined even where the job lacks them.
Environment with_base_directories(Environment environment) {
  const auto default_to = [&](std::string_view name, const std::string& value) {
    if (environment.get_or(name, "").empty()) environment.set(name, value);
  };
  // Who asks for accounts may wait for a directory service.
  if (environment.get_or("HOME", "").empty()) environment.set("HOME", home_of_caller());
  const std::string home = environment.get_or("HOME", "/");
  default_to("XDG_CONFIG_HOME", home + "/.config");
  default_to("XDG_DATA_HOME", home + "/.local/share");
  default_to("XDG_CACHE_HOME", home + "/.cache");
  return environment;
}

}  // namespace

Result<EnrootConfig> EnrootConfig::load(const Environment& environment, LogSink& log) {
  EnrootConfig config;
  config.environment_ = with_base_directories(environment);
  std::string sysconf = environment.get_or("ENROOT_SYSCONF_PATH", "");
  if (sysconf.empty()) sysconf = "/etc/enroot";
  config.lines_ = read_lines(sysconf, log);
  TRY_CONTEXT("evaluating the configuration in " + sysconf, evaluate(config.lines_, config.environment_, log));
  for (const auto& [name, value] : config.environment_.entries())
    if (!value.empty() && is_configuration_key(name)) config.values_.insert_or_assign(name, value);
  return config;
}

Result<void> EnrootConfig::apply_directives(std::string_view script, const std::string& where, LogSink& log) {
  size_t number = 0;
  for (const std::string_view raw : split(script, '\n')) {
    ++number;
    if (!raw.starts_with('#')) continue;
    const std::string_view text = trim(raw.substr(1));
    if (!text.starts_with("ENROOT_")) continue;
    std::optional<ConfigLine> line = parse_config_line(text, where + ":" + std::to_string(number), log);
    if (!line) continue;
    environment_.unset(line->key);
    std::vector<ConfigLine> lines = {std::move(*line)};
    TRY_CONTEXT(lines.front().where, evaluate(lines, environment_, log));
    set(lines.front().key, environment_.get_or(lines.front().key, ""));
  }
  return {};
}

void EnrootConfig::set(std::string_view name, std::string_view value) {
  environment_.set(name, value);
  values_.insert_or_assign(std::string(name), std::string(value));
}

Environment EnrootConfig::exported() const {
  Environment environment;
  for (const std::string_view key : known_keys()) environment.set(key, get(key));
  for (const auto& [name, value] : values_) environment.set(name, value);
  Environment result;
  for (const auto& [name, value] : environment.entries())
    if (!name.starts_with("ENROOT_") || (!value.empty() && !is_false(value))) result.set(name, value);
  return result;
}

std::string EnrootConfig::get(std::string_view name) const {
  if (const auto explicit_value = values_.find(name); explicit_value != values_.end()) return explicit_value->second;
  for (const auto& [key, value] : kDefaults)
    if (key == name) return std::string(value);
  if (name == "ENROOT_SYSCONF_PATH") return "/etc/enroot";
  if (name == "ENROOT_CONFIG_PATH") return environment_.get_or("XDG_CONFIG_HOME", "") + "/enroot";
  if (name == "ENROOT_DATA_PATH") return environment_.get_or("XDG_DATA_HOME", "") + "/enroot";
  if (name == "ENROOT_CACHE_PATH") return environment_.get_or("XDG_CACHE_HOME", "") + "/enroot";
  if (name == "ENROOT_RUNTIME_PATH") {
    const std::string base = environment_.get_or("XDG_RUNTIME_DIR", "");
    return base.empty() ? "/tmp/enroot-" + std::to_string(getuid()) : base + "/enroot";
  }
  if (name == "ENROOT_TEMP_PATH") {
    const std::string base = environment_.get_or("TMPDIR", "");
    return base.empty() ? "/tmp" : base;
  }
  if (name == "ENROOT_MAX_PROCESSORS") return std::to_string(std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L));
  return "";
}

Result<void> EnrootConfig::check_flags(LogSink& log) const {
  for (const auto& [key, usual] : kDefaults) {
    if (usual != "yes" && usual != "no") continue;
    const std::string value = get(key);
    if (is_false(value) || is_one_of(kTrue, value)) continue;
    // As enroot 1 and 2 had it: the shell itself, "/bin/sh" or "-/bin/sh".
    if (key == "ENROOT_LOGIN_SHELL" && (value.starts_with('/') || value.starts_with("-/"))) continue;
    const std::string found = std::string(key) + "=" + printable(value) + " (" + origin(key) + ")";
    if (!is_one_of(kMeantFalse, value))
      return fail(Error(ErrorKind::usage, found + " is neither yes nor no")
                      .with_code(ErrorCode::enroot_config)
                      .with_hint("write yes or no"));
    log.warning(found + " means yes, as in enroot: write no");
  }
  return {};
}

std::string EnrootConfig::origin(std::string_view name) const {
  for (const ConfigLine& line : lines_)
    if (line.key == name && line.used) return line.where;
  return values_.contains(name) ? "environment" : "default";
}

std::vector<std::string> EnrootConfig::unknown_keys() const {
  const std::vector<std::string_view> known = known_keys();
  std::vector<std::string> unknown;
  for (const auto& [key, value] : values_)
    if (key.starts_with("ENROOT_") && !is_one_of(known, key)) unknown.push_back(key);
  return unknown;
}

std::vector<std::string_view> EnrootConfig::known_keys() {
  std::vector<std::string_view> names = {"ENROOT_SYSCONF_PATH",   "ENROOT_CONFIG_PATH",    "ENROOT_DATA_PATH",
                                         "ENROOT_CACHE_PATH",     "ENROOT_RUNTIME_PATH",   "ENROOT_TEMP_PATH",
                                         "ENROOT_MAX_PROCESSORS", "ENROOT_SQUASH_OPTIONS", "ENROOT_TOKEN_SERVERS"};
  for (const auto& [name, value] : kDefaults) names.push_back(name);
  return names;
}

bool EnrootConfig::flag(std::string_view name, bool fallback) const {
  const std::string value = get(name);
  return value.empty() ? fallback : !is_false(value);
}

std::string EnrootConfig::sysconf_path() const {
  return get("ENROOT_SYSCONF_PATH");
}
std::string EnrootConfig::config_path() const {
  return get("ENROOT_CONFIG_PATH");
}
std::string EnrootConfig::data_path() const {
  return get("ENROOT_DATA_PATH");
}
std::string EnrootConfig::cache_path() const {
  return get("ENROOT_CACHE_PATH");
}
std::string EnrootConfig::runtime_path() const {
  return get("ENROOT_RUNTIME_PATH");
}
std::string EnrootConfig::temp_path() const {
  return get("ENROOT_TEMP_PATH");
}

}  // namespace situla
