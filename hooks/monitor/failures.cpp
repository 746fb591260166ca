#include "hooks/monitor/failures.hpp"

#include <algorithm>

#include "common/base/text.hpp"
#include "hooks/monitor/node_names.hpp"

namespace situla {
namespace {

std::string without(std::string text, const std::string& name) {
  for (size_t at = 0; !name.empty() && (at = text.find(name, at)) != std::string::npos;)
    text.replace(at, name.size(), 1, '\0');
  return text;
}

void add_lines(std::vector<std::string>& lines, const std::string& front, std::string_view text) {
  for (const std::string_view line : split_nonempty(text, '\n'))
    lines.push_back("srun: error: situla: " + front + printable(line));
}

}  // namespace

void Failures::add(const std::string& node, const SentError& error, Clock::time_point now) {
  constexpr size_t kMostGroups = 64;  // what a user's tasks can say in other words for ever has an end
  if (fresh_++ == 0) first_ = now;
  last_ = now;
  failed_.insert(node);
  const std::string alike = without(error.text, node);
  auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& one) {
    return one.error.code == error.code && one.error.kind == error.kind && one.alike == alike &&
           one.error.hint == error.hint;
  });
  if (group == groups_.end()) {
    if (groups_.size() == kMostGroups) return;
    group = groups_.insert(group, Group{error, alike, {}, false, 0});
  }
  group->nodes.push_back(node);
  ++group->fresh;
}

std::optional<Failures::Clock::time_point> Failures::due(Clock::time_point now) const {
  if (fresh_ == 0) return std::nullopt;
  return failed_.size() >= nodes_ ? now : std::min(last_ + kQuiet, first_ + kLongest);
}

std::vector<std::string> Failures::take() {
  std::vector<std::string> lines;
  for (Group& group : groups_) {
    if (group.fresh == 0) continue;
    const std::vector<std::string> fresh(group.nodes.end() - static_cast<std::ptrdiff_t>(group.fresh),
                                         group.nodes.end());
    const std::set<std::string> names(fresh.begin(), fresh.end());
    std::string where = printable(node_list({names.begin(), names.end()}));
    if (fresh.size() > names.size()) where += " (" + std::to_string(fresh.size()) + " tasks)";
    add_lines(lines, where + ": ", group.error.error().line());
    if (!group.said) add_lines(lines, "hint: ", group.error.hint);
    group.said = true;
    group.fresh = 0;
  }
  fresh_ = 0;
  return lines;
}

}  // namespace situla
