// What does a command get, and what does it give back?
#pragma once

#include <functional>
#include <iosfwd>
#include <map>
#include <string>
#include <vector>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/spec/environment.hpp"
#include "hooks/config/enroot_config.hpp"

namespace situla::cli {

/// Not owned. Results and usage go to out; log lines, hints and prompts to err.
struct Streams {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
  int terminal = -1;  ///< descriptor of err's terminal if it can draw progress bars; -1: none
};

struct Invocation {
  std::string program;                 ///< "situla" or "enroot": the name in usage; everything else is the same
  std::vector<std::string> arguments;  ///< without the program's name
  Environment environment;
};

/// What every command may use.
struct Context {
  const Invocation& invocation;
  const Streams& streams;
  LogSink& log;
  const EnrootConfig& config;
};

/// The exit status, or an error that is printed by the tool.
using Action = std::function<Result<int>(const Context&)>;
/// By subcommand name.
struct Actions : std::map<std::string, Action, std::less<>> {};

}  // namespace situla::cli
