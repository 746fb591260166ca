#include "hooks/doctor/cluster/nodeset.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "common/base/text.hpp"

namespace situla::doctor {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// "rack1-node007.site" -> prefix "rack1-node", number 7 of width 3, suffix ".site": the last number is the one that
/// counts.
struct Parts {
  std::string prefix, suffix;
  std::optional<uint64_t> number;
  size_t width = 0;  ///< with leading zeros, else 0
};

Parts parts_of(const std::string& name) {
  const auto end = static_cast<size_t>(name.rend() - std::find_if(name.rbegin(), name.rend(), is_digit));
  size_t begin = end;
  while (begin > 0 && is_digit(name[begin - 1])) --begin;
  Parts parts;
  parts.number = parse_unsigned(std::string_view(name).substr(begin, end - begin));
  if (!parts.number) return {name, "", std::nullopt, 0};
  parts.prefix = name.substr(0, begin);
  parts.suffix = name.substr(end);
  if (name[begin] == '0' && end - begin > 1) parts.width = end - begin;
  return parts;
}

std::string written(uint64_t number, size_t width) {
  std::string text = std::to_string(number);
  if (text.size() < width) text.insert(0, width - text.size(), '0');
  return text;
}

/// "01-03,07"
std::string ranges(const std::vector<uint64_t>& numbers, size_t width) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + written(numbers[i], width);
    if (last > i) text += "-" + written(numbers[last], width);
    i = last + 1;
  }
  return text;
}

}  // namespace

bool node_less(const std::string& left, const std::string& right) {
  const Parts one = parts_of(left), other = parts_of(right);
  return std::tie(one.prefix, one.number, one.suffix, left) < std::tie(other.prefix, other.number, other.suffix, right);
}

std::string fold_nodes(std::vector<std::string> nodes) {
  std::sort(nodes.begin(), nodes.end(), node_less);
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  // "node10" belongs to node08 and node09 as much as to node8 and node9: to the padded ones where there are any.
  std::map<std::tuple<std::string, std::string, size_t>, std::vector<uint64_t>> sets;
  std::vector<std::string> words;
  std::vector<Parts> unpadded;
  for (const std::string& node : nodes) {
    Parts parts = parts_of(node);
    if (!parts.number)
      words.push_back(node);
    else if (parts.width > 0)
      sets[{parts.prefix, parts.suffix, parts.width}].push_back(*parts.number);
    else
      unpadded.push_back(std::move(parts));
  }
  for (const Parts& parts : unpadded) {
    const std::tuple padded{parts.prefix, parts.suffix, std::to_string(*parts.number).size()};
    sets[sets.contains(padded) ? padded : std::tuple{parts.prefix, parts.suffix, size_t{0}}].push_back(*parts.number);
  }
  for (auto& [key, numbers] : sets) {
    const auto& [prefix, suffix, width] = key;
    std::sort(numbers.begin(), numbers.end());
    const std::string text = ranges(numbers, width);
    words.push_back(prefix + (numbers.size() > 1 ? "[" + text + "]" : text) + suffix);
  }
  std::sort(words.begin(), words.end(), node_less);
  return join(words, ",");
}

}  // namespace situla::doctor
