// What is removed when a job ends whose named containers belong to it? container_scope=job, COMPAT.md section 1.
#pragma once

#include <string>

namespace situla {

/// Mode "epilog": as the user, without a terminal, without the job's variables unless a step of it has left them on
/// builder_fd::kEnvironment. Removes every container "pyxis_<job>_*"; `home`: the user's home directory. Returns the
/// exit code: 1 when something is left.
int remove_job_containers(const std::string& job, const std::string& home);

}  // namespace situla
