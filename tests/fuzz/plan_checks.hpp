// Is a mount plan, whatever text it was made of, one that can be applied without looking at it again?
#pragma once

#include <cstdlib>
#include <string>

#include "hooks/mount/plan.hpp"

namespace situla {

inline void check_plan(const MountPlan& plan) {
  for (const MountStep& step : plan.steps()) {
    // Nothing outside of the root, and nothing that a system call would cut short.
    if (normal_target(step.target).value_or("") != step.target) std::abort();
    for (const std::string* text : {&step.source, &step.target, &step.type})
      if (text->find('\0') != std::string::npos) std::abort();
    for (const auto& [name, value] : step.parameters)
      if (name.find('\0') != std::string::npos || value.find('\0') != std::string::npos) std::abort();
    const bool from_host = step.kind == StepKind::bind || step.kind == StepKind::move;
    if (from_host && !step.source.starts_with('/')) std::abort();
    if (step.kind == StepKind::filesystem && step.type.empty()) std::abort();
    // A log line is one line.
    if (describe(step).find('\n') != std::string::npos) std::abort();
  }
}

}  // namespace situla
