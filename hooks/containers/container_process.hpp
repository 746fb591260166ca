// What does /proc say about a process that may be in a container? By an open /proc/PID, which never means another
// process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "common/base/unique_fd.hpp"

namespace situla {

/// A file of /proc/PID; empty when it cannot be read.
std::string read_process_file(int process, const std::string& name);

/// /proc/PID/stat from its third field on (the second one, in brackets, may hold anything).
struct ProcessStat {
  std::vector<std::string_view> fields;
  std::string text;
  /// By its number in proc_pid_stat(5), 3 or more.
  [[nodiscard]] int64_t number(size_t field) const;
};

/// nullopt: there is no such process any more.
std::optional<ProcessStat> read_stat(int process);

/// Whether its program was opened before it entered the container: one of ours, which serve the container
/// or stand in for its first process, and have the environment of the host.
bool runs_host_program(int process);

/// Who would lose files if a file system went away: descriptors (pidfd_open(2)) of the processes of this user, and in a
/// user namespace with a range of all, in whose mount namespace a file system with this device number is mounted, but
/// for the calling one. proc: an open /proc.
std::vector<UniqueFd> mount_users(int proc, dev_t device);

}  // namespace situla
