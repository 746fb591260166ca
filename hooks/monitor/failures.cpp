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

Failures::Group* Failures::find(const std::string& node, const SentError& error) {
  const std::string alike = without(error.text, node);
  const auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& one) {
    return one.error.code == error.code && one.error.kind == error.kind && one.alike == alike &&
           one.error.hint == error.hint;
  });
  return group == groups_.end() ? nullptr : &*group;
}

bool Failures::add(const std::string& node, const SentError& error, Clock::time_point now) {
  constexpr size_t kMostGroups = 256;  // what a user's tasks can say in other words for ever has an end
  Group* group = find(node, error);
  if (group == nullptr) {
    if (groups_.size() == kMostGroups) return false;
    group = &groups_.emplace_back(Group{error, without(error.text, node), {}, false});
  }
  if (fresh_++ == 0) first_ = now;
  last_ = now;
  failed_.insert(node);
  group->fresh.push_back({node, error.text});
  return true;
}

void Failures::withdraw(const std::string& node, const SentError& error) {
  Group* const group = find(node, error);
  if (group == nullptr) return;
  const auto one =
      std::find_if(group->fresh.begin(), group->fresh.end(), [&](const One& each) { return each.node == node; });
  if (one == group->fresh.end()) return;
  group->fresh.erase(one);
  --fresh_;
}

std::optional<Failures::Clock::time_point> Failures::due() const {
  if (fresh_ == 0) return std::nullopt;
  return std::min(last_ + (failed_.size() >= nodes_ ? kQuietOfAll : kQuiet), first_ + kLongest);
}

std::vector<std::string> Failures::take() {
  std::vector<std::string> lines;
  for (Group& group : groups_) {
    if (group.fresh.empty()) continue;
    std::set<std::string> names;
    for (const One& one : group.fresh) names.insert(one.node);
    std::string where = printable(node_list({names.begin(), names.end()}));
    if (group.fresh.size() > names.size()) where += " (" + std::to_string(group.fresh.size()) + " tasks)";
    add_lines(lines, where + ": ", group.error.error().in_words(group.fresh.front().text).line());
    if (!group.said) add_lines(lines, "hint: ", group.error.hint);
    group.said = true;
    group.fresh.clear();
  }
  fresh_ = 0;
  return lines;
}

}  // namespace situla
