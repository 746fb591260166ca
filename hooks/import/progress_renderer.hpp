// How does progress look? A bar on a terminal, one line per phase in a log.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/log.hpp"
#include "hooks/import/progress.hpp"

namespace situla {

/// One info line per phase, with the seconds and bytes of the phase when it ends; notes as they come.
class LogProgress final : public Progress {
 public:
  explicit LogProgress(LogSink& log) : log_(log) {}
  void phase(std::string_view text) noexcept override;
  void bytes(uint64_t done, uint64_t total) noexcept override;
  void note(std::string_view text) noexcept override;
  void finish(std::string_view text) noexcept override;

 private:
  void end_phase() noexcept;
  LogSink& log_;
  std::string phase_;
  uint64_t done_ = 0;
  std::chrono::steady_clock::time_point since_{};
};

/// A line that is drawn over itself at most ten times a second: phase, bar, bytes, rate, time to go. Phases and notes
/// stay above.
class TerminalProgress final : public Progress {
 public:
  /// terminal: file descriptor of a terminal, not owned.
  explicit TerminalProgress(int terminal) : terminal_(terminal) {}
  void phase(std::string_view text) noexcept override;
  void bytes(uint64_t done, uint64_t total) noexcept override;
  void note(std::string_view text) noexcept override;
  void finish(std::string_view text) noexcept override;

 private:
  void draw(bool now) noexcept;
  void put(std::string_view text) noexcept;
  int terminal_;
  std::string phase_;
  uint64_t done_ = 0, total_ = 0;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point since_{}, last_{};
};

/// One bar line without colors: "[=====>    ] 120.0/628.1 MiB  105.2 MiB/s  0:04". width: columns of the terminal.
std::string progress_bar(uint64_t done, uint64_t total, double seconds, unsigned width);

/// The terminal's bar when fd is a terminal, else lines in the log.
std::unique_ptr<Progress> make_progress(int fd, LogSink& log);

}  // namespace situla
