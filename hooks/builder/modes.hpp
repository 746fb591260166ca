// What can the builder be told to do? Each mode returns the exit code.
#pragma once

#include <string>

namespace situla {

/// Mode "container": from fresh namespaces to "ready", and to the end of the step. `image_mode` as in
/// common/protocol/contract.hpp. 0 when everything that was made outside the namespaces is gone again, 1 when something
/// may be left (then the broker starts a cleaner).
int build_container(const std::string& image_mode, const std::string& scratch_name);

/// Mode "clean": removes a scratch directory that a killed builder left.
int clean_scratch(const std::string& path);

/// Mode "sweep": removes what a killed builder left of a named container that it was making.
int sweep_unfinished();

/// Whether programs of the user's may be asked for a password: a command in .credentials, a credential helper.
enum class Programs { forbidden, allowed };

/// Mode "request": as the user, collects reference, credentials and settings and writes them to builder_fd::kOutput,
/// the importer's input. An error goes to the broker. Mode "request before-job" does so where a job has no cgroup yet:
/// a program of the user's would have devices, memory and time that no job of his was given, so none is run, and what
/// only such a one knows counts as missing. image: the reference of one that is mounted in the container; empty: the
/// container's own.
int write_import_request(Programs programs, const std::string& image = {});

/// Mode "epilog": the job has ended whose named containers belong to it (container_scope=job, COMPAT.md section 1). As
/// the user, without a terminal, without the job's variables unless a step of it has left them on
/// builder_fd::kEnvironment. Removes every container "pyxis_<job>_*"; `home`: the user's home directory. 1 when
/// something is left.
int remove_job_containers(const std::string& job, const std::string& home);

}  // namespace situla
