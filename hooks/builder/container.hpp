// How is the container of a step made, from fresh namespaces to "ready"? And how does its builder end?
#pragma once

#include <string>

namespace situla {

/// Mode "container". `image_mode` as in common/protocol/contract.hpp. Returns the exit code: 0 when everything that was
/// made outside the namespaces is gone again, 1 when something may be left (then the broker starts a cleaner).
int build_container(const std::string& image_mode, const std::string& scratch_name);

/// Mode "clean": removes a scratch directory that a killed builder left.
int clean_scratch(const std::string& path);

/// Mode "sweep": removes what a killed builder left of a named container that it was making.
int sweep_unfinished();

}  // namespace situla
