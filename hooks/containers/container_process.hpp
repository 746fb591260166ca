// What does /proc say about a process that may be in a container? By an open /proc/PID, which never means another
// process.
#pragma once

#include <string>

#include <sys/types.h>

namespace situla {

/// A file of /proc/PID; empty when it cannot be read.
std::string read_process_file(int process, const std::string& name);

/// Whether its program was opened before it entered the container: one of ours, which serve the container
/// or stand in for its first process, and have the environment of the host.
bool runs_host_program(int process);

}  // namespace situla
