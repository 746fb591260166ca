// What does a program print, and how does it end? Runs one to its end, within limits, and leaves none behind.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.hpp"
#include "common/sys/process/process.hpp"

namespace situla {

struct RunLimits {
  std::optional<std::chrono::milliseconds> time;  ///< nullopt: as long as it takes
  size_t output_bytes = size_t{64} << 10U;        ///< of standard output; one that prints more is ended
  size_t error_bytes = 0;  ///< of standard error the end is kept; 0: it goes where options.fds say
  /// Between SIGTERM, which comes again each second, and SIGKILL; and then until it is left alone.
  std::chrono::milliseconds grace{500};
  std::function<bool()> cancelled{};  ///< asked ten times a second; may be empty
  bool together = false;              ///< standard output goes where standard error goes, in its order
  /// Of a single-threaded process, with its capabilities: a guard (guarded.hpp) kills the program and all that it
  /// started, at once, when its time is over or this process ends.
  bool guarded = false;
};

struct ProgramRun {
  enum class End { by_itself, too_late, too_much_output, cancelled };
  End end = End::by_itself;
  std::optional<ExitStatus> status;  ///< always there for End::by_itself; nullopt: SIGKILL did not end it either
  std::string output, errors;

  [[nodiscard]] bool success() const { return end == End::by_itself && status && status->success(); }
};

/// Standard output is kept unless options.fds maps it. Processes that the program leaves running are not waited for,
/// even when they hold its output. With options.new_session all processes of its group are ended with it.
Result<ProgramRun> run_program(SpawnOptions options, const RunLimits& limits);

/// An error unless it is a file of root's that nobody else may write to.
Result<void> check_program_of_root(const std::string& path);

/// Where it is in a list of directories like $PATH, of which only absolute ones count; empty: nowhere.
std::string find_program(std::string_view name, std::string_view directories);

}  // namespace situla
