// What did the broker give this process? The specification and the environment, as the user made them.
#pragma once

#include "common/base/result.hpp"
#include "common/spec/container_spec.hpp"
#include "common/spec/environment.hpp"

namespace situla {

struct BuilderData {
  ContainerSpec spec;
  Environment job;   ///< as the task has it
  Environment host;  ///< what preparation sees: COMPAT.md 2, and without LANG, LANGUAGE, LC_ALL unless kept
};

/// Reads descriptors builder_fd::kSpec and kEnvironment and makes them close-on-exec.
Result<BuilderData> read_builder_data();

}  // namespace situla
