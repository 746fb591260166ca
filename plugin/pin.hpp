// Which image does a tag mean for all nodes of a step? Asked once, by srun, because a tag may move while nodes start.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "common/spec/container_spec.hpp"
#include "common/spec/environment.hpp"

namespace situla {

/// In srun's environment, and so in the job's, the digest; gone before the task starts.
constexpr const char* kDigestVariable = "SLURM_SITULA_IMAGE_DIGEST";

/// What srun knows of its step.
struct PinnedStep {
  std::string image;    ///< empty: nothing is to be pinned
  uint32_t job = 0;     ///< whose steps have one answer
  std::string resolve;  ///< ContainerSpec::resolve
};
/// In srun, as the user: sets the variable when an earlier step of the job knows, or the registry can be asked from
/// here within `limit`; else removes it, and every node asks for itself. Returns a warning, or nothing.
std::string pin_image(const PinnedStep& step, std::chrono::milliseconds limit);
/// On the node: takes the variable out of the environment, and the digest into ContainerSpec::pinned.
void use_pinned_image(Environment& environment, ContainerSpec& spec);

}  // namespace situla
