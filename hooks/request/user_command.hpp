// What does a program of the user print? For passwords that commands and credential helpers know: nothing of it is
// logged.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "common/base/result.hpp"
#include "common/sys/process/process.hpp"

namespace situla {

struct CommandOutput {
  ExitStatus status;
  std::string text;  ///< what it wrote to its standard output, at most 64 KiB
};

/// Runs a program to its end and collects its standard output; `input` is given to it on descriptor `input_fd`, never
/// as an argument. Errors say "the command ..." and hold neither input nor output; a program that takes longer than
/// `time` is killed.
Result<CommandOutput> run_for_output(SpawnOptions options, std::string_view input, int input_fd,
                                     std::chrono::milliseconds time);

}  // namespace situla
