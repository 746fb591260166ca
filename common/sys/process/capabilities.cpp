#include "common/sys/process/capabilities.hpp"

#include <array>

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace situla {

Result<void> keep_capabilities_over_exec() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> sets{};
  if (syscall(SYS_capget, &header, sets.data()) != 0) return fail_errno(errno, "read capabilities");
  // Ambient ones have to be inheritable first.
  for (auto& set : sets) set.inheritable = set.permitted;
  if (syscall(SYS_capset, &header, sets.data()) != 0) return fail_errno(errno, "make capabilities inheritable");
  for (unsigned long capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; ++capability) {
    const auto& set = sets.at(capability / 32);
    if ((set.permitted & (1U << (capability % 32))) == 0) continue;
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0) != 0)
      return fail_errno(errno, "keep capability " + std::to_string(capability) + " over exec");
  }
  return {};
}

}  // namespace situla
