// What happens between a command's connection and its end? One session, in a process of its own.
#pragma once

#include <string>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/protocol/slurm_inside.hpp"
#include "common/spec/environment.hpp"
#include "hooks/slurm/nested.hpp"

namespace situla {

/// What the proxy knows of its step.
struct StepOutside {
  SlurmProxyInput input;
  ContainerSpec spec;
  Environment environment;  ///< of the job, outside of the container
};

/// With a client that is a process of this user: from its request to the end of the host's command, which gets SIGTERM
/// when the client or the proxy (SIGTERM to this process) goes. Errors are said on the client's standard error.
void serve_command(const StepOutside& step, const UniqueFd& client);

/// What salloc runs: has the client run it, in `socket`, and ends as that does. Returns the exit code.
int run_inside(int socket, int request);

}  // namespace situla
