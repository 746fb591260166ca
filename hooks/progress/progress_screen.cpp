#include "hooks/progress/progress_screen.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "common/base/text.hpp"

namespace situla {
namespace {

constexpr double kRateSeconds = 5;      // a rate is of this time: long enough to be calm, short enough to be of now
constexpr double kLeastSeconds = 0.5;   // before that a rate says nothing
constexpr double kSampleSeconds = 0.1;  // between two samples
constexpr unsigned kMostBars = 8;

template <typename... Arguments>
std::string formatted(const char* format, Arguments... arguments) {
  std::array<char, 128> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, arguments...);
  return buffer.data();
}

bool continues(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U;
}

/// At most so many columns of the front, never half a character.
std::string cut_to(std::string_view text, size_t columns) {
  size_t end = 0;
  while (end < text.size() && (columns > 0 || continues(text[end])))
    if (!continues(text[end++])) --columns;
  return std::string(text.substr(0, end));
}

std::string time_left(double seconds) {
  const auto left = static_cast<uint64_t>(std::ceil(std::min(seconds, 359999.0)));
  const auto hours = static_cast<unsigned>(left / 3600);
  const auto minutes = static_cast<unsigned>(left / 60 % 60);
  const auto rest = static_cast<unsigned>(left % 60);
  if (hours > 0) return formatted("%u:%02u:%02u", hours, minutes, rest);
  return formatted("%u:%02u", minutes, rest);
}

}  // namespace

size_t columns_of(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char byte) { return !continues(byte); }));
}

std::string progress_bar(std::string_view name, uint64_t done, uint64_t total, std::string_view tail,
                         unsigned columns) {
  constexpr double kMebi = 1048576.0;
  constexpr size_t kLeastCells = 8;
  const double fraction = total == 0 ? 1.0 : std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  std::string head = cut_to(name, columns / 2);
  if (!head.empty()) head += ' ';
  const std::string counts =
      formatted(" %.1f/%.1f MiB", static_cast<double>(done) / kMebi, static_cast<double>(total) / kMebi) +
      std::string(tail);
  const size_t taken = columns_of(head) + 2 + counts.size();
  if (columns < taken + kLeastCells) return cut_to(head + counts.substr(1), columns);
  const size_t cells = columns - taken;
  const auto full = static_cast<size_t>(fraction * static_cast<double>(cells));
  std::string bar(full, '=');
  if (full < cells) bar += '>';
  bar.resize(cells, ' ');
  return head + "[" + bar + "]" + counts;
}

/// Up over what stands there, which takes more rows than it had if the window has become narrower, and all of it gone.
std::string Frame::erase(unsigned columns) {
  if (widths_.empty()) return {};
  size_t rows = 0;
  for (const size_t width : widths_) rows += std::max<size_t>(1, (width + columns - 1) / columns);
  widths_.clear();
  return "\x1b[" + std::to_string(rows) + "A\r\x1b[J";
}

std::string Frame::draw(const std::vector<std::string>& lines, unsigned columns) {
  std::string text = erase(columns);
  for (const std::string& line : lines) {
    text += line + "\x1b[K\n";
    widths_.push_back(columns_of(line));
  }
  return text;
}

void ProgressScreen::begin(std::string_view phase, double now) {
  phase_ = phase;
  waiting_.clear();
  since_ = grew_ = now;
  done_ = total_ = 0;
  active_.clear();
  samples_.clear();
}

void ProgressScreen::rename(std::string_view phase) {
  phase_ = phase;
  samples_.clear();
}

void ProgressScreen::bytes(uint64_t done, uint64_t total, double now) {
  if (done > done_) grew_ = now;
  // It begins anew, or it is another node now that is the slowest.
  while (!samples_.empty() && samples_.back().done > done) samples_.pop_back();
  done_ = done;
  total_ = total;
  if (!samples_.empty() && now - samples_.back().time < kSampleSeconds) return;
  samples_.push_back({now, done});
  while (samples_.size() > 2 && samples_[1].time <= now - kRateSeconds) samples_.pop_front();
}

bool ProgressScreen::waiting(std::string_view why) {
  if (waiting_ == why) return false;
  waiting_ = why;
  return true;
}

void ProgressScreen::layer(const LayerProgress& layer) {
  if (layer.finished) {
    active_.erase(layer.index);
    return;
  }
  Layer& shown = active_[layer.index];
  if (shown.name.empty()) shown.name = layer.name;
  shown.done = layer.done;
  shown.size = layer.size;
}

double ProgressScreen::rate(double now) const {
  if (samples_.empty()) return 0;
  const double seconds = now - samples_.front().time;
  return seconds < kLeastSeconds ? 0 : static_cast<double>(done_ - samples_.front().done) / seconds;
}

std::string ProgressScreen::standstill(double now) const {
  if (!waiting_.empty()) return "stalled, " + waiting_;
  const double seconds = now - grew_;
  return seconds < kRateSeconds ? "0.0 MiB/s  -:--" : formatted("stalled for %.0f s", std::floor(seconds));
}

std::vector<std::string> ProgressScreen::lines(Window window, double now) const {
  const unsigned columns = window.columns > 1 ? window.columns - 1 : 1;
  const bool waits = total_ == 0 && !waiting_.empty();
  std::vector<std::string> lines{cut_to(waits ? phase_ + ": " + waiting_ : phase_, columns)};
  if (total_ == 0) return lines;
  const unsigned room = window.rows > 4 ? window.rows - 4 : 0;
  for (const auto& [index, layer] : active_) {
    if (lines.size() > std::min(room, kMostBars)) break;
    lines.push_back(progress_bar(layer.name, layer.done, layer.size, "", columns));
  }
  const double speed = rate(now);
  std::string tail;
  if (speed > 0)
    tail = formatted("  %.1f MiB/s  ", speed / 1048576.0) +
           time_left(static_cast<double>(total_ - std::min(done_, total_)) / speed);
  else if (!samples_.empty() && now - samples_.front().time > kLeastSeconds && done_ < total_)
    tail = "  " + standstill(now);
  lines.push_back(progress_bar("total", done_, total_, tail, columns));
  return lines;
}

std::string ProgressScreen::line(double now) const {
  if (total_ == 0) return waiting_.empty() ? "" : phase_ + ": " + waiting_;
  std::string text = phase_ + ": " + format_size(done_) + " of " + format_size(total_);
  const double speed = rate(now);
  if (speed > 0)
    text += formatted(", %.1f MiB/s, ", speed / 1048576.0) +
            time_left(static_cast<double>(total_ - std::min(done_, total_)) / speed) + " left";
  else if (done_ < total_ && (!waiting_.empty() || now - grew_ >= kRateSeconds))
    text += ", " + standstill(now);
  return text;
}

std::string ProgressScreen::last_line(double now) const {
  std::string text = summary(now);
  if (done_ > 0 && now > since_)
    text += formatted(", %.1f MiB/s", static_cast<double>(done_) / 1048576.0 / (now - since_));
  return text;
}

std::string ProgressScreen::summary(double now) const {
  if (phase_.empty()) return {};
  std::string text = phase_ + ": " + formatted("%.1f s", now - since_);
  if (done_ > 0) text += ", " + format_size(done_);
  return text;
}

}  // namespace situla
