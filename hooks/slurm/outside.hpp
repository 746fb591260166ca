// Where on the host is a directory that a container shows? By the mounts that both see, and only where it is the same.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/sys/mount_table.hpp"

namespace situla {

/// The same file system, at a place of which `directory` is a part: the paths that it may have in `host`, best first.
/// `inside`: the path of a directory as the container has it, on its mount `mount`.
std::vector<std::string> host_candidates(const std::vector<MountRecord>& container, uint64_t mount,
                                         std::string_view inside, const std::vector<MountRecord>& host);

/// The host's path of an open directory of the container (O_PATH). `mountinfo`: the container's, as its processes read
/// it. nullopt: it is in the container alone (its image, its own /tmp), or the user may not get there outside.
std::optional<std::string> host_path(int directory, std::string_view mountinfo);

}  // namespace situla
