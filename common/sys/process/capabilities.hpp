// How do programs that this process executes keep its capabilities?
#pragma once

#include "common/base/result.hpp"

namespace situla {

/// Raises every permitted capability in the ambient set (capabilities(7)): without it an ordinary user's program has
/// none after execve(2), also in a user namespace where its parent had all of them. Children inherit it.
Result<void> keep_capabilities_over_exec();

}  // namespace situla
