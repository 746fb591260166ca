// How does a plan become mounts? Step by step, on descriptors, every target resolved beneath the container's root.
#pragma once

#include <vector>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "hooks/mount/plan.hpp"

namespace situla {

/// Mounts everything in order. The first step that fails ends it, unless it is a nofail one: that is skipped with a
/// warning (without one when silent). The error names who asked, what, where and why; a missing source is
/// ErrorKind::not_found.
Result<void> apply(const MountPlan& plan, const ApplyTarget& target, LogSink& log);

/// A plan of these steps, applied at once.
Result<void> mount_steps(const std::vector<MountStep>& steps, const ApplyTarget& target, LogSink& log);

}  // namespace situla
