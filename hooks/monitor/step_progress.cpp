#include "hooks/monitor/step_progress.hpp"

#include <algorithm>

#include "common/base/text.hpp"

namespace situla {
namespace {

double part(uint64_t done, uint64_t total) {
  return total == 0 ? 0 : static_cast<double>(done) / static_cast<double>(total);
}

}  // namespace

StepProgress::StepProgress(uint32_t nodes, std::string image, ProgressView terminal)
    : nodes_(nodes), is_terminal_(terminal.columns > 0), image_(std::move(image)), bars_(std::move(terminal)) {}

const std::pair<const std::string, StepProgress::Node>* StepProgress::slowest() {
  constexpr double kBehind = 0.02;  // two that are about as far shall not change places all the time
  const std::pair<const std::string, Node>* least = nullptr;
  const auto how_far = [](const auto& one) { return part(one.second.done, one.second.total); };
  for (const auto& one : importing_)
    if (one.second.waits_for.empty() && (least == nullptr || how_far(one) < how_far(*least))) least = &one;
  const auto before = importing_.find(slowest_);
  if (least != nullptr && before != importing_.end() && before->second.waits_for.empty() &&
      how_far(*before) <= how_far(*least) + kBehind)
    least = &*before;
  slowest_ = least == nullptr ? "" : least->first;
  return least;
}

std::string StepProgress::title(const std::pair<const std::string, Node>* slowest) const {
  const auto count = static_cast<size_t>(std::count_if(importing_.begin(), importing_.end(),
                                                       [](const auto& one) { return one.second.waits_for.empty(); }));
  std::string text;
  if (count == 0)
    text = std::to_string(importing_.size()) + (nodes_ == 0 ? "" : " of " + std::to_string(nodes_)) +
           " nodes wait for " + image_;
  else if (count == 1)
    text = "importing " + image_ + " on " + slowest->first;
  else
    text = "importing " + image_ + " on " + std::to_string(count) + " nodes, the slowest " + slowest->first;
  if (count > 0 && importing_.size() > count) text += ", " + std::to_string(importing_.size() - count) + " wait";
  if (over_ > 0) text += ", " + std::to_string(over_) + " have it";
  return text;
}

std::string StepProgress::show(Clock::time_point now) {
  const auto* const least = slowest();
  std::string title = this->title(least);
  const std::string waits = least != nullptr ? "" : importing_.begin()->second.waits_for;
  const Node node = least != nullptr ? least->second : Node();
  const bool begins = title_.empty();
  for (StepBars* const each : {&bars_, &lines_}) {
    if (begins)
      each->phase(title, now);
    else if (title != title_)
      each->rename(title);
  }
  title_ = std::move(title);
  const auto fed = [&](StepBars& bars) {
    std::string drawn = bars.waiting(waits, now);
    drawn += bars.bytes(node.done, node.total, now);
    return drawn;
  };
  (void)fed(lines_);
  if (is_terminal_ && importing_.size() == nodes_) return fed(bars_);
  const std::string line = lines_.line(now);
  return line.empty() ? "" : "situla: " + line + "\n";
}

std::string StepProgress::heard(const std::string& node, const ImportProgress& progress, Clock::time_point now) {
  importing_[node] = {progress.done, progress.total, ""};
  return show(now);
}

std::string StepProgress::heard(const std::string& node, const ImportWaits& waits, Clock::time_point now) {
  importing_[node] = {0, 0, waits.what.empty() ? "another" : printable(waits.what)};
  return show(now);
}

std::string StepProgress::over(const std::string& node, Clock::time_point now) {
  ++over_;
  return lost(node, now);
}

std::string StepProgress::lost(const std::string& node, Clock::time_point now) {
  if (importing_.erase(node) == 0) return {};
  std::string text = bars_.finish(now);
  if (!importing_.empty()) return text;
  title_.clear();
  if (const std::string line = lines_.last_line(now); !line.empty()) text += "situla: " + line + "\n";
  return text;
}

std::string StepProgress::pause(Clock::time_point now) {
  return bars_.clear(now);
}

}  // namespace situla
