#include "common/spec/step_name.hpp"

#include <limits>

#include "common/base/text.hpp"

namespace situla {
namespace {

constexpr std::string_view kContainerPrefix = "pyxis_";

std::optional<uint32_t> parse_number(std::string_view text) {
  const auto number = parse_unsigned(text);
  const bool plain = !text.empty() && (text == "0" || text.front() != '0');
  if (!number || !plain || *number > std::numeric_limits<uint32_t>::max()) return std::nullopt;
  return static_cast<uint32_t>(*number);
}

}  // namespace

std::string StepName::text() const {
  return std::to_string(job) + "." + std::to_string(step);
}

std::string StepName::scratch() const {
  return std::string(kContainerPrefix) + text();
}

std::optional<StepName> parse_step_name(std::string_view text) {
  const auto pieces = cut(text, '.');
  if (!pieces) return std::nullopt;
  const auto job = parse_number(pieces->first);
  std::optional<uint32_t> step = parse_number(pieces->second);
  if (pieces->second == "batch") step = kBatchStep;
  if (pieces->second == "interactive") step = kInteractiveStep;
  if (!job || !step) return std::nullopt;
  return StepName{*job, *step};
}

std::optional<StepName> step_of_scratch(std::string_view directory) {
  if (!directory.starts_with(kContainerPrefix)) return std::nullopt;
  const std::string_view name = directory.substr(kContainerPrefix.size());
  const size_t dot = name.find('.');
  const size_t ending = dot == std::string_view::npos ? dot : name.find('.', dot + 1);
  return parse_step_name(name.substr(0, ending));
}

}  // namespace situla
