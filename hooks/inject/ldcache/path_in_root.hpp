// What is an open file of a root called inside it, without any links?
#pragma once

#include <string>

#include "common/base/result.hpp"
#include "common/sys/root_dir.hpp"

namespace situla {

/// "/usr/local/cuda-12.4/compat"; the kernel's own answer, so /proc has to be there.
Result<std::string> path_in_root(const RootDir& root, int fd);

}  // namespace situla
