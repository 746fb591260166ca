#include "hooks/inject/nvidia/requirement.hpp"

#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/text.hpp"

namespace situla::nvidia {
namespace {

constexpr std::string_view kOperatorCharacters = "<>=!";

struct Operator {
  std::string_view text;
  bool less, equal, greater;  ///< which outcomes of a comparison satisfy it
};
constexpr std::array<Operator, 6> kOperators = {{{"=", false, true, false},
                                                 {"!=", true, false, true},
                                                 {"<", true, false, false},
                                                 {"<=", true, true, false},
                                                 {">", false, false, true},
                                                 {">=", false, true, true}}};

bool holds(const Operator& relation, std::strong_ordering order) {
  if (std::is_lt(order)) return relation.less;
  return std::is_gt(order) ? relation.greater : relation.equal;
}

/// Parts of "550.54.15", without zeros at the end: 12 is 12.0. nullopt: no version.
std::optional<std::vector<uint64_t>> parse_version(std::string_view text) {
  std::vector<uint64_t> parts;
  for (const std::string_view piece : split_nonempty(text, '.')) {
    const auto number = parse_unsigned(piece);
    if (!number) return std::nullopt;
    parts.push_back(*number);
  }
  if (parts.empty()) return std::nullopt;
  while (!parts.empty() && parts.back() == 0) parts.pop_back();
  return parts;
}

/// A property that is no version says nothing, like one that is empty.
std::optional<bool> compare_versions(std::string_view property, const Operator& relation, std::string_view value) {
  const auto have = parse_version(property);
  if (!have) return true;
  const auto demanded = parse_version(value);
  if (!demanded) return std::nullopt;
  return holds(relation, *have <=> *demanded);
}

/// nullopt: this is no condition.
std::optional<bool> evaluate_condition(std::string_view text, const Properties& properties) {
  const size_t name_end = text.find_first_of(kOperatorCharacters);
  if (name_end == 0 || name_end == std::string_view::npos) return std::nullopt;
  const size_t value_begin = text.find_first_not_of(kOperatorCharacters, name_end);
  if (value_begin == std::string_view::npos) return std::nullopt;
  const std::string name = to_lower(text.substr(0, name_end));
  const std::string_view sign = text.substr(name_end, value_begin - name_end);
  const std::string_view value = text.substr(value_begin);
  const auto* const relation = std::find_if(kOperators.begin(), kOperators.end(),
                                            [&](const Operator& candidate) { return candidate.text == sign; });
  if (relation == kOperators.end()) return std::nullopt;
  if (name == "brand") {
    if (relation->less != relation->greater) return std::nullopt;  // brands have no order
    if (properties.brand.empty()) return true;
    return holds(*relation, to_lower(properties.brand) <=> to_lower(value));
  }
  const std::string* const property = name == "cuda"     ? &properties.cuda
                                      : name == "driver" ? &properties.driver
                                      : name == "arch"   ? &properties.architecture
                                                         : nullptr;
  if (property == nullptr) return std::nullopt;
  return compare_versions(*property, *relation, value);
}

/// Whether all conditions hold; the first that does not, or that is none, decides.
std::optional<bool> evaluate_clause(std::string_view clause, const Properties& properties) {
  for (const std::string_view condition : split_nonempty(clause, ',')) {
    const std::optional<bool> outcome = evaluate_condition(condition, properties);
    if (outcome != true) return outcome;
  }
  return true;
}

}  // namespace

Result<void> check_requirement(std::string_view expression, const Properties& properties) {
  const auto clauses = split_nonempty(expression, ' ');
  if (clauses.empty()) return {};
  for (const std::string_view clause : clauses) {
    const std::optional<bool> outcome = evaluate_clause(clause, properties);
    if (!outcome) return fail(ErrorKind::usage, "requirement error: invalid expression: " + printable(clause));
    if (*outcome) return {};
  }
  const std::string_view first = clauses.front();
  std::string message = "requirement error: unsatisfied condition: " + printable(first);
  if (first.starts_with("cuda>="))
    message += ", please update your driver to a newer version, or use an earlier cuda container";
  return fail(ErrorKind::unsupported, message);
}

}  // namespace situla::nvidia
