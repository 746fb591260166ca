#include "hooks/monitor/node_names.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <utility>

#include "common/base/text.hpp"

namespace situla {
namespace {

/// "node" and its numbers, all as wide (digits; 0: without a zero in front): 007 to 010.
using Family = std::pair<std::string, size_t>;

std::string padded(uint64_t number, size_t width) {
  const std::string digits = std::to_string(number);
  return std::string(width > digits.size() ? width - digits.size() : 0, '0') + digits;
}

std::string ranges(const std::set<uint64_t>& numbers, size_t width) {
  std::string text;
  for (auto first = numbers.begin(); first != numbers.end();) {
    auto last = first;
    for (auto next = std::next(last); next != numbers.end() && *next == *last + 1; ++next) last = next;
    text += (text.empty() ? "" : ",") + padded(*first, width);
    if (last != first) text += "-" + padded(*last, width);
    first = std::next(last);
  }
  return text;
}

}  // namespace

std::string node_list(std::vector<std::string> names) {
  constexpr size_t kMostDigits = 18;
  std::map<Family, std::set<uint64_t>> families;
  std::set<std::string> others;
  for (std::string& name : names) {
    const size_t digits = static_cast<size_t>(
        std::find_if(name.rbegin(), name.rend(), [](unsigned char c) { return std::isdigit(c) == 0; }) - name.rbegin());
    const auto number = parse_unsigned(std::string_view(name).substr(name.size() - digits));
    if (!number || digits > kMostDigits) {
      others.insert(std::move(name));
      continue;
    }
    // 9 and 10 are of one family, 09 and 9 are not.
    const bool leads_with_zero = digits > 1 && name[name.size() - digits] == '0';
    families[{name.substr(0, name.size() - digits), leads_with_zero ? digits : 0}].insert(*number);
  }
  // 08, 09 and 10: what is as wide without a zero goes with them.
  for (auto& [wider, theirs] : families) {
    const auto plain = families.find({wider.first, 0});
    if (wider.second == 0 || plain == families.end()) continue;
    std::erase_if(plain->second, [&goes_to = theirs, width = wider.second](uint64_t number) {
      return std::to_string(number).size() == width && goes_to.insert(number).second;
    });
  }
  std::vector<std::string> parts;
  for (const auto& [family, numbers] : families) {
    if (numbers.empty()) continue;
    const std::string text = ranges(numbers, family.second);
    parts.push_back(family.first + (numbers.size() > 1 ? "[" + text + "]" : text));
  }
  parts.insert(parts.end(), others.begin(), others.end());
  return join(parts, ",");
}

}  // namespace situla
