#include "plugin/broker/step_report.hpp"

#include <utility>

namespace situla {

void StepReport::begin(std::string_view phase) {
  end();
  running_ = phase;
  begun_ = Clock::now();
}

void StepReport::end() {
  if (running_.empty()) return;
  const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begun_);
  phases_.push_back({std::exchange(running_, {}), time});
}

std::string StepReport::text() const {
  if (root_.empty()) return "";
  std::string text;
  if (!digest_.empty()) text += "digest=" + digest_ + " ";
  text += "source=" + source_ + " mount=" + root_;
  for (const Phase& phase : phases_) text += " " + phase.name + "=" + std::to_string(phase.time.count()) + "ms";
  return text;
}

}  // namespace situla
