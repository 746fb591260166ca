// How is NVIDIA's management library asked without loading it here? By a process that has no capabilities, and a time
// limit.
#pragma once

#include <chrono>
#include <string>

#include "common/base/result.hpp"
#include "hooks/inject/inventory/nvml_answer.hpp"

namespace situla::nvidia {

inline constexpr std::chrono::milliseconds kNvmlLimit{10'000};

/// `program` is situla-nvml, `library` a libnvidia-ml.so.1 as this process sees it. The program is killed at the limit;
/// one that the kernel does not let go is left behind.
Result<NvmlAnswer> query_nvml(const std::string& program, const std::string& library,
                              std::chrono::milliseconds limit = kNvmlLimit);

}  // namespace situla::nvidia
