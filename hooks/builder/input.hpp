// What did the broker give this process? The specification and the environment, as the user made them.
#pragma once

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/spec/container_spec.hpp"
#include "common/spec/environment.hpp"

namespace situla {

struct BuilderData {
  ContainerSpec spec;
  Environment job;   ///< as the task has it
  Environment host;  ///< what preparation sees: COMPAT.md 2, and without LANG, LANGUAGE, LC_ALL unless kept
  UniqueFd image;    ///< of mode "container": the file that the broker gave or the asking task opened, or none
};

/// Reads descriptors builder_fd::kSpec and kEnvironment and makes them close-on-exec.
Result<BuilderData> read_builder_data();
/// The same for mode "container", whose environment is that of the task on builder_fd::kTask.
Result<BuilderData> read_task_data();

/// The file that the broker gave: itself, or in a parcel of the process of ours that opened it.
Result<UniqueFd> unpacked(UniqueFd given);

/// What imports see. XDG_* and HOME say where the credentials are; commands and credential helpers that know passwords
/// are found by the job's PATH, which the preparation of a container does without. They run as the user, who could run
/// them as well: nothing privileged is near, and every descriptor of ours is closed in them.
Environment credentials_environment(const BuilderData& data);

}  // namespace situla
