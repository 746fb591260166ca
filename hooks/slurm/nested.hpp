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

/// The specification for tasks in `workdir`: the same image (by its digest), mounts, name and options. What tasks have
/// in `environment` they keep. Nothing is saved again.
ContainerSpec same_container(const OuterContainer& outer, const std::string& workdir, const Environment& environment);

/// Of the command. `inside`: of who typed it; `outside`: the step's, before there was a container. From outside come
/// SLURM_CONF and, for a job that begins on the host (sbatch, salloc), what names places there (PATH, HOME, ...).
/// What the dynamic linker obeys is of no use to a program of the host: tasks get it by kKeptPrefix.
Environment host_environment(std::string_view command, const Environment& inside, const Environment& outside,
                             const std::string& slurm_conf);

}  // namespace situla
