// Which devices may be opened by what lives in a cgroup?
#pragma once

#include <string>

#include "common/base/result.hpp"

namespace situla {

enum class CgroupVersion : uint8_t { v1, v2 };

/// null, zero, full, random and urandom, and what their opener was given open. Root only. directory: of the cgroup, in
/// version 1 in the hierarchy of `devices`, before anything lives in it. Version 2: a program of BPF, Linux 4.15
/// (bpf(2), BPF_PROG_TYPE_CGROUP_DEVICE); it is gone with the cgroup.
Result<void> allow_plain_devices(const std::string& directory, CgroupVersion version);

}  // namespace situla
