// How is a path resolved beneath a root without openat2(2)? Component by component. Used by root_dir.cpp only.
#pragma once

#include <string_view>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"

namespace situla {

/// As openat2(2) with RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS. The error's operand is the path.
Result<UniqueFd> walk_open(int root_fd, std::string_view path, int flags, mode_t mode);

}  // namespace situla
