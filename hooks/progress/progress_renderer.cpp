#include "hooks/progress/progress_renderer.hpp"

#include <algorithm>

#include <sys/ioctl.h>
#include <unistd.h>

namespace situla {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kRedraw{100};
constexpr std::chrono::milliseconds kQuiet{700};  // an import that is over by then needs no bar of a step
constexpr std::chrono::milliseconds kRedrawBars{200};
constexpr size_t kRoom = 2;  // rows for what srun says between two drawings
const std::string kEraseBelow = "\x1b[J";

double seconds_of(Clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

double now() {
  return seconds_of(Clock::now());
}

ProgressScreen::Window window_of(int terminal) {
  winsize size{};
  if (ioctl(terminal, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {size.ws_col, size.ws_row};
}

}  // namespace

void LogProgress::end_phase() noexcept {
  const std::string summary = screen_.summary(now());
  if (!summary.empty()) log_.info(summary);
}

void LogProgress::phase(std::string_view text) noexcept {
  end_phase();
  screen_.begin(text, now());
  lines_.begin(Clock::now());
}

void LogProgress::tell_if_due() noexcept {
  const std::string line = screen_.line(now());
  if (!line.empty() && lines_.due(Clock::now())) log_.info(line);
}

void LogProgress::bytes(uint64_t done, uint64_t total) noexcept {
  screen_.bytes(done, total, now());
  tell_if_due();
}

void LogProgress::waiting(std::string_view why) noexcept {
  (void)screen_.waiting(why);
  if (!why.empty()) tell_if_due();
}

void LogProgress::note(std::string_view text) noexcept {
  log_.info(text);
}

void LogProgress::finish(std::string_view text) noexcept {
  end_phase();
  screen_.begin("", now());
  if (!text.empty()) log_.info(text);
}

void TerminalProgress::put(std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t size = ::write(terminal_, text.data(), text.size());
    if (size <= 0) return;
    text.remove_prefix(static_cast<size_t>(size));
  }
}

std::string TerminalProgress::erased() {
  return frame_.erase(window_of(terminal_).columns);
}

void TerminalProgress::draw() noexcept {
  last_ = Clock::now();
  const ProgressScreen::Window window = window_of(terminal_);
  put(frame_.draw(screen_.lines(window, now()), window.columns));
}

void TerminalProgress::end_phase() noexcept {
  put(erased());
  const std::string summary = screen_.summary(now());
  if (!summary.empty()) log_.info(summary);
}

void TerminalProgress::phase(std::string_view text) noexcept {
  end_phase();
  screen_.begin(text, now());
  draw();
}

void TerminalProgress::bytes(uint64_t done, uint64_t total) noexcept {
  screen_.bytes(done, total, now());
  if (Clock::now() - last_ >= kRedraw) draw();
}

void TerminalProgress::waiting(std::string_view why) noexcept {
  if (screen_.waiting(why)) draw();
}

void TerminalProgress::layer(const LayerProgress& layer) noexcept {
  screen_.layer(layer);
}

void TerminalProgress::note(std::string_view text) noexcept {
  const bool was_drawn = frame_.drawn();
  put(erased());
  log_.info(text);
  if (was_drawn) draw();
}

void TerminalProgress::finish(std::string_view text) noexcept {
  end_phase();
  screen_.begin("", now());
  if (!text.empty()) log_.info(text);
}

std::unique_ptr<Progress> make_progress(int fd, LogSink& log) {
  if (isatty(fd) == 1) return std::make_unique<TerminalProgress>(fd, log);
  return std::make_unique<LogProgress>(log);
}

void StepBars::phase(std::string_view text, Clock::time_point now) {
  screen_.begin(view_.label + std::string(text), seconds_of(now));
  said_ = false;
  next_ = now + kQuiet;
  lines_.begin(now);
}

std::string StepBars::line(Clock::time_point now) {
  if (view_.columns != 0 || view_.silent) return {};
  std::string text = screen_.line(seconds_of(now));
  if (text.empty() || !lines_.due(now)) return {};
  said_ = true;
  return text;
}

std::string StepBars::last_line(Clock::time_point now) {
  return std::exchange(said_, false) ? screen_.last_line(seconds_of(now)) : std::string();
}

std::string StepBars::bytes(uint64_t done, uint64_t total, Clock::time_point now) {
  screen_.bytes(done, total, seconds_of(now));
  return draw(now);
}

std::string StepBars::waiting(std::string_view why, Clock::time_point now) {
  return screen_.waiting(why) ? draw(now) : std::string();
}

std::string StepBars::draw(Clock::time_point now) {
  if (view_.columns == 0 || now < next_) return {};
  next_ = now + kRedrawBars;
  // The phase and the total: what srun's last words leave of them when it ends is little.
  const std::vector<std::string> lines = screen_.lines({view_.columns, 0}, seconds_of(now));
  if (view_.rows < kRoom + lines.size() + 1) return {};
  drawn_ = true;
  std::string text = kEraseBelow;
  for (size_t i = 0; i < kRoom; ++i) text += "\r\n";
  for (const std::string& line : lines) text += (&line == lines.data() ? "" : "\r\n") + line;
  // One row too many, for the end of the line that srun waits for.
  return text + "\x1b[" + std::to_string(kRoom + lines.size()) + "A\r\n";
}

std::string StepBars::clear(Clock::time_point now) {
  if (!std::exchange(drawn_, false)) return {};
  next_ = now + kQuiet;
  return kEraseBelow;
}

std::string StepBars::finish(Clock::time_point now) {
  if (!std::exchange(drawn_, false)) return {};
  std::string text = kEraseBelow + screen_.summary(seconds_of(now)) + "\n";
  screen_.begin("", seconds_of(now));
  return text;
}

}  // namespace situla
