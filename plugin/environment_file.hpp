// What does --environment=NAME come to? In srun, sbatch and salloc `situla environment resolve` says it; the node and
// the steps of a job hear it from there.
#pragma once

#include <string>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "plugin/options.hpp"

namespace situla {

/// On the client, as the user: reads the files, puts what they say beneath the options, and into this process's
/// environment for the node. Warnings of the files are said. What a srun has of its job (inherit_environment()) is not
/// read again: the files may have changed, or be elsewhere. Without --environment nothing is left in the environment.
Result<void> read_environment_file(ContainerOptions& options, LogSink& log);

/// On the node, where no file of a user is read with privilege: what the client has found.
Result<void> take_environment_file(ContainerOptions& options, const ContainerOptions::Lookup& lookup);

}  // namespace situla
