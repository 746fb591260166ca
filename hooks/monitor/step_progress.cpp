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
    : nodes_(nodes), image_(std::move(image)), bars_(std::move(terminal)) {}

const std::pair<const std::string, StepProgress::Node>* StepProgress::slowest() {
  constexpr double kBehind = 0.02;  // two that are about as far shall not change places all the time
  const std::pair<const std::string, Node>* least = nullptr;
  const auto how_far = [](const auto& one) { return part(one.second.done, one.second.total); };
  for (const auto& one : importing_)
    if (one.second.waits_for.empty() && (least == nullptr || how_far(one) < how_far(*least))) least = &one;
  const auto before = importing_.find(slowest_);
  if (before != importing_.end() && before->second.waits_for.empty() && how_far(*before) <= how_far(*least) + kBehind)
    least = &*before;
  slowest_ = least == nullptr ? "" : least->first;
  return least;
}

std::string StepProgress::title(const std::pair<const std::string, Node>* slowest) const {
  const auto count = static_cast<size_t>(std::count_if(importing_.begin(), importing_.end(),
                                                       [](const auto& one) { return one.second.waits_for.empty(); }));
  std::string text;
  if (count == 0)
    text = std::to_string(importing_.size()) + " of " + std::to_string(nodes_) + " nodes wait for " + image_;
  else if (count == 1)
    text = "importing " + image_ + " on " + slowest->first;
  else
    text = "importing " + image_ + " on " + std::to_string(count) + " nodes, the slowest " + slowest->first;
  if (count > 0 && importing_.size() > count) text += ", " + std::to_string(importing_.size() - count) + " wait";
  if (over_ > 0) text += ", " + std::to_string(over_) + " have it";
  return text;
}

std::string StepProgress::show(Clock::time_point now) {
  if (importing_.empty()) return {};
  const auto* const least = slowest();
  std::string text = title(least);
  if (title_.empty())
    bars_.phase(text, now);
  else if (text != title_)
    bars_.rename(text);
  title_ = std::move(text);
  std::string drawn = least != nullptr
                          ? bars_.waiting("", now) + bars_.bytes(least->second.done, least->second.total, now)
                          : bars_.bytes(0, 0, now) + bars_.waiting(importing_.begin()->second.waits_for, now);
  if (const std::string line = bars_.line(now); !line.empty()) drawn += "situla: " + line + "\n";
  return drawn;
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
  importing_.erase(node);
  std::string text = pause(now);
  bars_ = StepBars(ProgressView{});
  return text;
}

std::string StepProgress::lost(const std::string& node, Clock::time_point now) {
  if (importing_.erase(node) == 0) return {};
  return importing_.empty() ? pause(now) : std::string();
}

std::string StepProgress::pause(Clock::time_point now) {
  title_.clear();
  return bars_.finish(now);
}

}  // namespace situla
