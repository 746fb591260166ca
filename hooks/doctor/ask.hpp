// What do other programs say? Runs them side by side, each with a limit of its own, and leaves none behind.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/sys/process/process.hpp"

namespace situla::doctor {

struct Question {
  std::string program;                 ///< absolute path
  std::vector<std::string> arguments;  ///< without the program's name
};

struct Answer {
  std::string output;  ///< of standard output, at most 4 MiB
  std::string errors;  ///< of standard error, the last 4 MiB
  bool late = false;   ///< it was ended because its time was over
  ExitStatus status;   ///< when it was not late
  std::string broken;  ///< why it could not be run at all; empty: it ran
  std::chrono::system_clock::time_point began{}, ended{};
};

struct Limits {
  std::chrono::milliseconds each{5000};  ///< then SIGTERM, and SIGKILL after some seconds more
  size_t at_once = 1;
};

/// The answers in the order of the questions. SIGINT, SIGTERM and SIGHUP end the programs (with SIGTERM, so that srun
/// takes its job back) and give ErrorKind::cancelled.
Result<std::vector<Answer>> ask_all(const std::vector<Question>& questions, const std::vector<std::string>& environment,
                                    Limits limits);
/// One program; what it says on standard output, trimmed. nullopt when it fails, whatever the reason.
std::optional<std::string> ask(const Question& question, const std::vector<std::string>& environment);

}  // namespace situla::doctor
