#include "common/base/error_code.hpp"

#include <algorithm>
#include <array>

namespace situla {
namespace {

constexpr std::array kNames = std::to_array<std::string_view>({"",
                                                               "image-name",
                                                               "image-not-found",
                                                               "image-platform",
                                                               "image-damaged",
                                                               "image-unsupported",
                                                               "image-too-large",
                                                               "image-file",
                                                               "image-in-use",
                                                               "registry-login",
                                                               "registry-blocked",
                                                               "registry-unreachable",
                                                               "registry-certificate",
                                                               "registry-busy",
                                                               "registry-answer",
                                                               "credentials",
                                                               "engine",
                                                               "store-full",
                                                               "mount-limit",
                                                               "disk-full",
                                                               "memory",
                                                               "open-files",
                                                               "container-name",
                                                               "container-exists",
                                                               "container-not-found",
                                                               "container-in-use",
                                                               "file-exists",
                                                               "mount-syntax",
                                                               "mount-source",
                                                               "mount-failed",
                                                               "workdir",
                                                               "command",
                                                               "start-script",
                                                               "hook",
                                                               "namespaces",
                                                               "gpu-request",
                                                               "gpu-driver",
                                                               "gpu-requirement",
                                                               "cdi",
                                                               "option",
                                                               "enroot-config",
                                                               "site-config",
                                                               "environment-file",
                                                               "kernel",
                                                               "installation",
                                                               "slurm",
                                                               "time-limit",
                                                               "helper",
                                                               "failed",
                                                               "wrong-input",
                                                               "not-found",
                                                               "exists",
                                                               "denied",
                                                               "network",
                                                               "damaged",
                                                               "no-space",
                                                               "unsupported",
                                                               "cancelled"});
static_assert(kNames.size() == static_cast<size_t>(last_of(ErrorCode{})) + 1);

}  // namespace

std::string_view to_string(ErrorCode code) {
  return kNames.at(static_cast<size_t>(code));
}

ErrorCode error_code_from_string(std::string_view name) {
  const auto* const found = std::find(kNames.begin(), kNames.end(), name);
  return found == kNames.end() ? ErrorCode::none : static_cast<ErrorCode>(found - kNames.begin());
}

}  // namespace situla
