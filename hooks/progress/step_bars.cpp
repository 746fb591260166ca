#include "hooks/progress/step_bars.hpp"

namespace situla {
namespace {

constexpr std::chrono::milliseconds kQuiet{700};  // an import that is over by then needs no bar
constexpr std::chrono::milliseconds kRedrawBars{200};

double seconds_of(StepBars::Clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

}  // namespace

void StepBars::phase(std::string_view text, Clock::time_point now) {
  screen_.begin(text, seconds_of(now));
  next_ = now + kQuiet;
}

std::string StepBars::bytes(uint64_t done, uint64_t total, Clock::time_point now) {
  screen_.bytes(done, total, seconds_of(now));
  if (window_.columns == 0 || now < next_) return {};
  next_ = now + kRedrawBars;
  return frame_.draw(screen_.lines(window_, seconds_of(now)), window_.columns);
}

std::string StepBars::finish(Clock::time_point now) {
  if (!frame_.drawn()) return {};
  std::string text = erase() + screen_.summary(seconds_of(now)) + "\n";
  screen_.begin("", seconds_of(now));
  return text;
}

}  // namespace situla
