// Where do messages go? To the LogSink that the process was given: spdlog in programs, slurm_error() in the plugin.
#pragma once

#include <string>
#include <string_view>

namespace situla {

enum class LogLevel {
  debug,
  detail,  ///< for who reads the node's log; whoever waits at a terminal need not know
  info,
  warning,
  error
};

/// Interface without state of its own; implementations must not throw. Not owned by those who log.
class LogSink {
 public:
  virtual ~LogSink() = default;
  virtual void write(LogLevel level, std::string_view message) noexcept = 0;

  void debug(std::string_view message) noexcept { write(LogLevel::debug, message); }
  void detail(std::string_view message) noexcept { write(LogLevel::detail, message); }
  void info(std::string_view message) noexcept { write(LogLevel::info, message); }
  void warning(std::string_view message) noexcept { write(LogLevel::warning, message); }
  void error(std::string_view message) noexcept { write(LogLevel::error, message); }
};

/// Drops everything.
class NullLog final : public LogSink {
 public:
  void write(LogLevel, std::string_view) noexcept override {}
};

}  // namespace situla
