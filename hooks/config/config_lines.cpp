#include "hooks/config/config_lines.hpp"

#include <algorithm>
#include <array>

#include "common/base/text.hpp"

namespace situla {
namespace {

bool only(std::string_view text, std::string_view extra) {
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || extra.find(c) != extra.npos;
  });
}

/// What bash has whether the environment has it or not (bash(1), "Shell Variables").
bool is_shells_own(std::string_view name) {
  constexpr std::array<std::string_view, 32> kOwn = {
      "_",       "COPROC",   "DIRSTACK", "EPOCHREALTIME", "EPOCHSECONDS", "EUID",     "FUNCNAME",  "GROUPS",
      "HISTCMD", "HOSTNAME", "HOSTTYPE", "IFS",           "LINENO",       "MACHTYPE", "OLDPWD",    "OPTARG",
      "OPTERR",  "OPTIND",   "OSTYPE",   "PATH",          "PIPESTATUS",   "PPID",     "PS4",       "PWD",
      "RANDOM",  "SECONDS",  "SHELL",    "SHLVL",         "TERM",         "UID",      "SHELLOPTS", "SRANDOM"};
  return name.starts_with("BASH") || std::find(kOwn.begin(), kOwn.end(), name) != kOwn.end();
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
  for (size_t i = 0; i < raw.size(); ++i) {
    if (only(raw.substr(i, 1), kPlain)) continue;
    if (raw[i] != '$') return std::nullopt;
    const bool braces = raw.substr(i + 1).starts_with('{');
    size_t end = i + (braces ? 2 : 1);
    const size_t begin = end;
    while (end < raw.size() && only(raw.substr(end, 1), "_")) ++end;
    const std::string_view name = raw.substr(begin, end - begin);
    if (!is_variable_name(name) || is_shells_own(name)) return std::nullopt;
    if (braces && !raw.substr(end).starts_with('}')) return std::nullopt;
    if (!only(environment.get_or(name, ""), kPlain)) return std::nullopt;
    i = braces ? end : end - 1;
  }
  const std::string expanded = expand_variables(raw, environment);
  std::vector<std::string> words;
  for (const std::string_view word : split_words(expanded)) words.emplace_back(word);
  // echo takes these for its own options.
  if (!words.empty() && words.front().size() > 1 && words.front()[0] == '-' &&
      words.front().find_first_not_of("neE", 1) == std::string::npos)
    return std::nullopt;
  return join(words, " ");
}

}  // namespace situla
