// What do the NVIDIA_* variables of a job and of its image ask for? README.md has the table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/spec/environment.hpp"
#include "hooks/inject/gpu/request.hpp"
#include "hooks/inject/inventory/inventory.hpp"

namespace situla::nvidia {

using gpu::Asker;

/// NVIDIA_REQUIRE_<any>: a condition on driver and GPUs (requirement.hpp).
struct NamedRequirement {
  std::string variable;
  std::string expression;
};

/// NVIDIA_IMEX_CHANNELS
struct ImexRequest {
  bool all = false;
  std::vector<uint32_t> channels;
  bool of_image = false;  ///< no wish of the job's: nothing to fail about
};

struct DriverRequest : gpu::Request {
  bool driver = false;             ///< the driver's files and control nodes, even without a GPU ("none")
  CapabilitySet capabilities = 0;  ///< as asked for; what follows from them is plan.cpp's
  std::vector<NamedRequirement> requirements;
  bool mig_config = false, mig_monitor = false;
  ImexRequest imex;
  bool gds = false, mofed = false, gdrcopy = false, nvswitch = false;

  /// Whether plan() has anything to do, and the inventory is worth its price.
  [[nodiscard]] bool wanted() const { return driver; }
};

/// `host`: the job's environment with enroot.conf's keys; `container`: what the image and its configuration say. A
/// variable that the host has, even empty, beats the container's. ErrorKind::usage names variable and word.
Result<DriverRequest> parse_request(const Environment& host, const Environment& container);

}  // namespace situla::nvidia
