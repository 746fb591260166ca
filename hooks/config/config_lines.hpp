// Which settings does a file of enroot.conf have, and what do their values give where no shell is needed to know?
// COMPAT.md section 4.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/log.hpp"
#include "common/spec/environment.hpp"

namespace situla {

/// The keys that COMPAT.md 4 says are read.
bool is_configuration_key(std::string_view key);

/// One "KEY value" line, its value not evaluated yet.
struct ConfigLine {
  std::string key;
  std::string raw;
  std::string where;  ///< "/etc/enroot/enroot.conf:3"
  bool used = false;  ///< once all are evaluated: the key has its value from here
};

/// nullopt for blank lines, comments, lines without a value, and (with a warning) lines that are none of ours.
std::optional<ConfigLine> parse_config_line(std::string_view text, std::string where, LogSink& log);
/// All lines of a file.
std::vector<ConfigLine> parse_config_lines(std::string_view text, const std::string& file, LogSink& log);

/// What `eval echo` would print as this process, for text that needs no shell to know: plain words, $NAME, ${NAME},
/// $(id -u) and $(id -g). Starting a shell costs milliseconds on the way to every container.
std::optional<std::string> evaluate_plainly(std::string_view raw, const Environment& environment);

}  // namespace situla
