// How does a plan become mounts? Step by step, on descriptors, every target resolved beneath the container's root.
#pragma once

#include <string>
#include <vector>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/sys/root_dir.hpp"
#include "hooks/mount/plan.hpp"

namespace situla {

struct ApplyTarget {
  const RootDir& root;    ///< the container's root, a mount of this namespace
  std::string root_path;  ///< where it is: ENROOT_ROOTFS. Sources beneath it are resolved inside the root
};

/// Mounts everything in order. The first step that fails ends it, unless it is a nofail one: that is skipped with a
/// warning (without one when silent). The error names who asked, what, where and why; a missing source is
/// ErrorKind::not_found.
Result<void> apply(const ValidatedMountPlan& plan, const ApplyTarget& target, LogSink& log);

/// A plan of these steps, validated and applied at once.
Result<void> mount_steps(const std::vector<MountStep>& steps, const std::string& working_directory,
                         const ApplyTarget& target, LogSink& log);

}  // namespace situla
