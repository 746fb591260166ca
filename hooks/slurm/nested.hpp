// What does a Slurm command of the host get of a container's variables, and how do the tasks of an srun come into the
// same container again?
#pragma once

#include <string>
#include <string_view>

#include "common/spec/container_spec.hpp"
#include "common/spec/environment.hpp"

namespace situla {

/// The container of a step, for a step that was begun in it.
struct OuterContainer {
  ContainerSpec spec;
  std::string directory;  ///< of the job, where its relative paths begin
  std::string digest;     ///< of its image; empty: not known
};

/// The specification for tasks in `workdir`: the same image (by its digest), mounts, name and options. Nothing is saved
/// again.
ContainerSpec same_container(const OuterContainer& outer, const std::string& workdir);

/// Of a command of the host. `inside`: of who typed it; `outside`: the step's, before there was a container.
/// same: of an srun in the same container. It has what was outside, for the container is made anew, and what Slurm's
/// variables are inside; the others of inside are for the tasks alone (kKeptPrefix).
/// Else: what is inside, but what names places (PATH, HOME), and what shells obey, is from outside, and nothing
/// is there that the dynamic linker obeys.
/// SLURM_CONF is always from outside.
Environment host_environment(bool same, const Environment& inside, const Environment& outside,
                             const std::string& slurm_conf);

/// Whether a batch script has unset the variable by which sbatch's --container-image holds for the sruns inside, or
/// that of pyxis, as scripts do to get rid of it (plugin/README.md).
bool has_dropped_image(const Environment& inside, const Environment& outside);

/// The value of srun's --export for the same container: names mean the variables inside.
std::string kept_export(std::string_view value);

}  // namespace situla
