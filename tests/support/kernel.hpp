// What has this kernel of what Situla does without on an older one? tests/support/as-linux takes it away.
#pragma once

#include <cerrno>
#include <vector>

#include "common/sys/kernel.hpp"
#include "common/sys/mount/mount_api.hpp"
#include "common/sys/root_dir.hpp"

namespace situla::test {

/// Of a call that does nothing when its first argument is -1 and the others are 0.
inline bool kernel_has(long call) {
  return syscall(call, -1, nullptr, nullptr, 0, 0) >= 0 || errno != ENOSYS;
}

/// What can be tried here: the old way always.
inline std::vector<ResolveMode> resolve_modes() {
  if (!kernel_has(kernel::kOpenat2)) return {ResolveMode::walk};
  return {ResolveMode::openat2, ResolveMode::walk};
}
inline std::vector<MountApi> mount_apis() {
  if (!modern_mount_api()) return {MountApi::classic};
  return {MountApi::modern, MountApi::classic};
}

}  // namespace situla::test
