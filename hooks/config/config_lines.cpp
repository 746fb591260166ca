#include "hooks/config/config_lines.hpp"

#include <algorithm>
#include <array>

#include <unistd.h>

#include "common/base/text.hpp"

namespace situla {
namespace {

bool only(std::string_view text, std::string_view extra) {
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || extra.find(c) != extra.npos;
  });
}

/// What bash has whether the environment has it or not (bash(1), "Shell Variables"), but for UID and EUID.
bool is_shells_own(std::string_view name) {
  constexpr std::array<std::string_view, 30> kOwn = {
      "_",        "COPROC",   "DIRSTACK",  "EPOCHREALTIME", "EPOCHSECONDS", "FUNCNAME", "GROUPS", "HISTCMD",
      "HOSTNAME", "HOSTTYPE", "IFS",       "LINENO",        "MACHTYPE",     "OLDPWD",   "OPTARG", "OPTERR",
      "OPTIND",   "OSTYPE",   "PATH",      "PIPESTATUS",    "PPID",         "PS4",      "PWD",    "RANDOM",
      "SECONDS",  "SHELL",    "SHELLOPTS", "SHLVL",         "SRANDOM",      "TERM"};
  return name.starts_with("BASH") || std::find(kOwn.begin(), kOwn.end(), name) != kOwn.end();
}

/// nullopt: the shell knows.
std::optional<std::string> value_in_shell(std::string_view name, const Environment& environment) {
  if (name == "UID") return std::to_string(getuid());
  if (name == "EUID") return std::to_string(geteuid());
  if (is_shells_own(name)) return std::nullopt;
  return environment.get_or(name, "");
}

constexpr std::string_view kUserId = "$(id -u)";
constexpr std::string_view kGroupId = "$(id -g)";
static_assert(kUserId.size() == kGroupId.size());

/// What id(1) would print as this process.
std::optional<unsigned> starts_with_id(std::string_view text) {
  if (text.starts_with(kUserId)) return geteuid();
  if (text.starts_with(kGroupId)) return getegid();
  return std::nullopt;
}

}  // namespace

bool is_configuration_key(std::string_view key) {
  constexpr std::array<std::string_view, 6> kWhole = {"SSL_CERT_DIR", "SSL_CERT_FILE", "all_proxy",
                                                      "no_proxy",     "http_proxy",    "https_proxy"};
  if (std::find(kWhole.begin(), kWhole.end(), key) != kWhole.end()) return true;
  for (const std::string_view prefix : {"ENROOT_", "MELLANOX_", "NVIDIA_"}) {
    if (!key.starts_with(prefix) || key.size() == prefix.size()) continue;
    return only(key, "_") &&
           (prefix != "ENROOT_" || key.find_first_of("abcdefghijklmnopqrstuvwxyz0123456789") == key.npos);
  }
  return false;
}

std::optional<ConfigLine> parse_config_line(std::string_view text, std::string where, LogSink& log) {
  text = trim(text);
  if (text.empty() || text.front() == '#') return std::nullopt;
  if (text.find('\0') != std::string_view::npos) {  // which no variable can hold
    log.warning(where + ": ignoring a line with a NUL byte");
    return std::nullopt;
  }
  const std::string_view key = text.substr(0, text.find_first_of(" \t="));
  if (!is_configuration_key(key)) {
    log.warning(where + ": ignoring unknown key \"" + printable(key) + "\"");
    return std::nullopt;
  }
  std::string_view value = trim(text.substr(key.size()));
  if (value.starts_with('=')) value = trim(value.substr(1));
  if (value.empty()) return std::nullopt;
  return ConfigLine{.key = std::string(key), .raw = std::string(value), .where = std::move(where)};
}

std::vector<ConfigLine> parse_config_lines(std::string_view text, const std::string& file, LogSink& log) {
  std::vector<ConfigLine> lines;
  size_t number = 0;
  for (const std::string_view each : split(text, '\n')) {
    ++number;
    if (std::optional<ConfigLine> line = parse_config_line(each, file + ":" + std::to_string(number), log))
      lines.push_back(std::move(*line));
  }
  return lines;
}

std::optional<std::string> evaluate_plainly(std::string_view raw, const Environment& environment) {
  constexpr std::string_view kPlain = " \t_/.,:+=@%-";
  std::string expanded;
  for (size_t i = 0; i < raw.size();) {
    if (only(raw.substr(i, 1), kPlain)) {
      expanded += raw[i++];
      continue;
    }
    if (const auto id = starts_with_id(raw.substr(i))) {
      expanded += std::to_string(*id);
      i += kUserId.size();
      continue;
    }
    if (raw[i] != '$') return std::nullopt;
    const bool braces = raw.substr(i + 1).starts_with('{');
    size_t end = i + (braces ? 2 : 1);
    const size_t begin = end;
    while (end < raw.size() && only(raw.substr(end, 1), "_")) ++end;
    const std::string_view name = raw.substr(begin, end - begin);
    if (!is_variable_name(name)) return std::nullopt;
    if (braces && !raw.substr(end).starts_with('}')) return std::nullopt;
    const std::optional<std::string> value = value_in_shell(name, environment);
    if (!value || !only(*value, kPlain)) return std::nullopt;
    expanded += *value;
    i = braces ? end + 1 : end;
  }
  std::vector<std::string> words;
  for (const std::string_view word : split_words(expanded)) words.emplace_back(word);
  // echo takes these for its own options.
  if (!words.empty() && words.front().size() > 1 && words.front()[0] == '-' &&
      words.front().find_first_not_of("neE", 1) == std::string::npos)
    return std::nullopt;
  return join(words, " ");
}

}  // namespace situla
