// How does a cluster's own program (importer= in plugstack.conf) get an image for a step?
#pragma once

#include <string>
#include <vector>

namespace situla {

/// argv: `situla-importer site get|release PROGRAM RUNTIME JOB STEP`, with the descriptors of a builder (builder_fd),
/// as the job user.
///
/// get: runs `PROGRAM get docker://IMAGE` and sends the squashfs file whose path its first line of output is: opened as
/// the user, for this step only. release: runs `PROGRAM release`, which forgets the step. Its environment is the one
/// that containers are prepared with (COMPAT.md 2), PYXIS_RUNTIME_PATH=RUNTIME, PYXIS_VERSION, and SLURM_JOB_ID and
/// SLURM_STEP_ID, which say for whom. What it writes to stderr is shown when it fails, and only then. Ends, and ends
/// the program's process group, when the broker closes its end. Returns the exit code.
int run_site_program(const std::vector<std::string>& words);

}  // namespace situla
