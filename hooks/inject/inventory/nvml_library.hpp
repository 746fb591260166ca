// What does a libnvidia-ml.so.1 answer? Loaded here and now: only in a process that has nothing to lose.
#pragma once

#include <string>

#include "common/base/result.hpp"
#include "hooks/inject/inventory/nvml_answer.hpp"

namespace situla::nvidia {

/// Loads the library and asks it for everything. A function that it lacks, and a GPU that it may not or cannot look at,
/// is a note; only a library that cannot be loaded or has no driver beneath it is an error.
Result<NvmlAnswer> ask_nvml(const std::string& library);

}  // namespace situla::nvidia
