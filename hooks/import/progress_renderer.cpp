#include "hooks/import/progress_renderer.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include <sys/ioctl.h>
#include <unistd.h>

#include "common/base/text.hpp"

namespace situla {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kRedraw{100};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

template <typename... Arguments>
std::string formatted(const char* format, Arguments... arguments) {
  std::array<char, 128> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, arguments...);
  return buffer.data();
}

unsigned columns_of(int terminal) {
  winsize size{};
  if (ioctl(terminal, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace

void LogProgress::end_phase() noexcept {
  if (phase_.empty()) return;
  std::string line = phase_ + ": " + formatted("%.1f s", seconds_since(since_));
  if (done_ > 0) line += ", " + format_size(done_);
  log_.info(line);
  phase_.clear();
  done_ = 0;
}

void LogProgress::phase(std::string_view text) noexcept {
  end_phase();
  phase_ = text;
  since_ = Clock::now();
}

void LogProgress::bytes(uint64_t done, uint64_t) noexcept {
  done_ = done;
}
void LogProgress::note(std::string_view text) noexcept {
  log_.info(text);
}

void LogProgress::finish(std::string_view text) noexcept {
  end_phase();
  if (!text.empty()) log_.info(text);
}

std::string progress_bar(uint64_t done, uint64_t total, double seconds, unsigned width) {
  constexpr double kMebi = 1048576.0;
  const double fraction = total == 0 ? 1.0 : std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  const double rate = seconds > 0.05 ? static_cast<double>(done) / seconds : 0;
  std::string tail = formatted(" %.1f/%.1f MiB", static_cast<double>(done) / kMebi, static_cast<double>(total) / kMebi);
  if (rate > 0) {
    const auto left = static_cast<unsigned>(std::ceil(static_cast<double>(total - std::min(done, total)) / rate));
    tail += formatted("  %.1f MiB/s  %u:%02u", rate / kMebi, left / 60, left % 60);
  }
  if (width < tail.size() + 12) return tail.substr(0, width);
  const auto cells = static_cast<size_t>(width) - tail.size() - 3;
  const auto full = static_cast<size_t>(fraction * static_cast<double>(cells));
  std::string bar(full, '=');
  if (full < cells) bar += '>';
  bar.resize(cells, ' ');
  return "[" + bar + "]" + tail;
}

void TerminalProgress::put(std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t size = ::write(terminal_, text.data(), text.size());
    if (size <= 0) return;
    text.remove_prefix(static_cast<size_t>(size));
  }
}

void TerminalProgress::draw(bool now) noexcept {
  if (total_ == 0 || (!now && Clock::now() - last_ < kRedraw)) return;
  last_ = Clock::now();
  drawn_ = true;
  put("\r" + progress_bar(done_, total_, seconds_since(since_), columns_of(terminal_) - 1) + "\x1b[K");
}

void TerminalProgress::phase(std::string_view text) noexcept {
  if (drawn_) {
    draw(true);
    put("\n");
  }
  phase_ = text;
  done_ = total_ = 0;
  drawn_ = false;
  since_ = Clock::now();
  put(phase_ + "\n");
}

void TerminalProgress::bytes(uint64_t done, uint64_t total) noexcept {
  done_ = done;
  total_ = total;
  draw(done == total);
}

void TerminalProgress::note(std::string_view text) noexcept {
  put((drawn_ ? "\r\x1b[K" : "") + std::string(text) + "\n");
  if (drawn_) draw(true);
}

void TerminalProgress::finish(std::string_view text) noexcept {
  if (drawn_) put("\n");
  drawn_ = false;
  if (!text.empty()) put(std::string(text) + "\n");
}

std::unique_ptr<Progress> make_progress(int fd, LogSink& log) {
  if (isatty(fd) == 1) return std::make_unique<TerminalProgress>(fd);
  return std::make_unique<LogProgress>(log);
}

}  // namespace situla
