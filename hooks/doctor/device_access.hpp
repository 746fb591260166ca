// Who may open a device node?
#pragma once

#include <string>

#include "common/sys/root_dir.hpp"

namespace situla::doctor {

struct NodeAccess {
  bool mine = false;        ///< this process may read and write
  std::string reason;       ///< why not
  std::string only_for;     ///< whom its mode restricts it to: "group video"; empty: nobody
  bool restricted = false;  ///< by the device cgroup, which is as a job should have it
};

/// `path` beneath the device root: "/dev/nvidia0". Nothing is opened.
NodeAccess node_access(const RootDir& devices, const std::string& path);

}  // namespace situla::doctor
