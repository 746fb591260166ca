// Where are the files that only a container's preparation needs? In the stage, a tmpfs that no path leads to once the
// process is inside.
#pragma once

#include <string>
#include <string_view>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"

namespace situla {

/// ENROOT_RUNTIME_PATH: covered by a tmpfs of our own namespace as soon as there is one.
Result<UniqueFd> open_stage(const std::string& path);

/// An unnamed file in the stage, close-on-exec, opened for reading and appending.
Result<UniqueFd> temporary_file(const UniqueFd& stage, std::string_view content = {});

}  // namespace situla
