// How is progress told? Bars on a terminal, one line per phase in a log; for a task that waits for an import, bars on
// its user's terminal, which only srun can see.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/log.hpp"
#include "common/spec/progress_view.hpp"
#include "hooks/progress/progress.hpp"
#include "hooks/progress/progress_screen.hpp"

namespace situla {

/// When is it time for the next line of a phase that lasts?
class EveryHalfMinute {
 public:
  using Clock = std::chrono::steady_clock;
  void begin(Clock::time_point now) { next_ = now + kPause; }
  /// True once in half a minute.
  bool due(Clock::time_point now) {
    if (now < next_) return false;
    begin(now);
    return true;
  }

 private:
  static constexpr std::chrono::seconds kPause{30};
  Clock::time_point next_;
};

/// One info line per phase, with the seconds and bytes of the phase when it ends, and one every half minute before;
/// notes as they come.
class LogProgress final : public Progress {
 public:
  explicit LogProgress(LogSink& log) : log_(log) {}
  void phase(std::string_view text) noexcept override;
  void bytes(uint64_t done, uint64_t total) noexcept override;
  void waiting(std::string_view why) noexcept override;
  void note(std::string_view text) noexcept override;
  void finish(std::string_view text) noexcept override;

 private:
  void end_phase() noexcept;
  void tell_if_due() noexcept;
  LogSink& log_;
  ProgressScreen screen_;
  EveryHalfMinute lines_;
};

/// Lines that are drawn over themselves at most ten times a second, in the size the window then has. Between two
/// drawings the cursor stands at the beginning of the line below them and is never hidden: whoever is interrupted, by
/// whatever signal, leaves the terminal as it has to be. Of every phase one line remains, and notes stay above: these
/// are lines of the log, as all others on that terminal.
class TerminalProgress final : public Progress {
 public:
  /// terminal: file descriptor of a terminal, not owned; the log writes to the same one, at once.
  TerminalProgress(int terminal, LogSink& log) : terminal_(terminal), log_(log) {}
  void phase(std::string_view text) noexcept override;
  void bytes(uint64_t done, uint64_t total) noexcept override;
  void waiting(std::string_view why) noexcept override;
  void layer(const LayerProgress& layer) noexcept override;
  void note(std::string_view text) noexcept override;
  void finish(std::string_view text) noexcept override;

 private:
  void draw() noexcept;
  std::string erased();
  void end_phase() noexcept;
  void put(std::string_view text) noexcept;
  int terminal_;
  LogSink& log_;
  ProgressScreen screen_;
  Frame frame_;
  std::chrono::steady_clock::time_point last_{};
};

/// Bars when fd is a terminal, else lines in the log.
std::unique_ptr<Progress> make_progress(int fd, LogSink& log);

/// Gives the bytes to be written to the terminal of a step. srun writes there, too ("one more within 1 sec to abort"),
/// and nothing of that may be lost: the bars stand below the cursor, which is where srun's lines go on, and every
/// drawing removes only what is below it. A few empty lines between make room for srun's words. srun passes on whole
/// lines only, so every drawing ends with one; and it brings the task's own output by another way, so nothing may move
/// the cursor up once the task can have begun. A short import draws nothing; one line remains of a long one.
class StepBars {
 public:
  using Clock = std::chrono::steady_clock;
  StepBars() = default;  ///< without a terminal
  explicit StepBars(ProgressView view) : view_(std::move(view)) {}

  void phase(std::string_view text, Clock::time_point now);
  /// As of ProgressScreen.
  void rename(std::string_view text) { screen_.rename(view_.label + std::string(text)); }
  void layer(const LayerProgress& layer) { screen_.layer(layer); }
  [[nodiscard]] std::string bytes(uint64_t done, uint64_t total, Clock::time_point now);
  /// As Progress::waiting().
  [[nodiscard]] std::string waiting(std::string_view why, Clock::time_point now);
  /// After bytes() or waiting(): for a step without a terminal, a line for its log every half minute; else empty.
  [[nodiscard]] std::string line(Clock::time_point now);
  /// Before finish(), for a log that has such lines: a last one; else empty.
  [[nodiscard]] std::string last_line(Clock::time_point now);
  /// Before something else is written: what is drawn goes, until it is drawn again.
  [[nodiscard]] std::string clear(Clock::time_point now);
  /// To be written at the end.
  [[nodiscard]] std::string finish(Clock::time_point now);

 private:
  [[nodiscard]] std::string draw(Clock::time_point now);

  ProgressView view_;
  ProgressScreen screen_;
  bool drawn_ = false;
  bool said_ = false;  ///< line()
  Clock::time_point next_;
  EveryHalfMinute lines_;
};

}  // namespace situla
