// What can this node do, what is missing, and how is that fixed? `situla doctor`.
#pragma once

#include <string>

#include "common/spec/environment.hpp"
#include "hooks/doctor/report.hpp"

namespace situla::doctor {

/// What a user has: ENROOT_DATA_PATH and the like.
struct UserPaths {
  std::string data, cache, temp, runtime;
};

/// Which node it is, and no section yet.
Report report_of_this_node();
/// What slurmd wants to know: the node, what is installed, and Slurm. Milliseconds.
Report examine(const Places& places, const Environment& environment);
/// Adds which way of keeping the store is in effect, and tries what it needs, where there is Slurm: as root by a file
/// in the store. Seconds, where a file server or munge is slow to answer.
void examine_store(Report& report, const Places& places, const Environment& environment);
/// Adds the directories of the caller.
void examine_user(Report& report, const UserPaths& paths);
/// Adds what the node has of devices, and what of it containers get: seconds, where a driver is slow to answer.
void examine_devices(Report& report, const Places& places, const Environment& environment);

}  // namespace situla::doctor
