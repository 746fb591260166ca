// What has to change in a container so that it can use NVIDIA's driver and the GPUs that were asked for?
#pragma once

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/spec/environment.hpp"
#include "common/spec/site_config.hpp"
#include "common/sys/root_dir.hpp"
#include "hooks/inject/edits/edits.hpp"
#include "hooks/inject/edits/host_roots.hpp"
#include "hooks/inject/inventory/inventory.hpp"
#include "hooks/inject/nvidia/selection.hpp"
#include "hooks/inject/nvidia/variables.hpp"

namespace situla::nvidia {

struct PlanContext {
  const HostRoots& roots;
  const RootDir& root;             ///< the container's, /proc and /dev mounted
  const Environment& environment;  ///< the job's: CUDA_MPS_PIPE_DIRECTORY
  const DeviceSettings& settings;  ///< hide_gpus, cuda_compat
  DeviceAccess access;             ///< kernel_access(roots.devices)
};

/// Only looks; edits/apply.hpp makes it true. Nothing for a request that wants nothing. Errors are those of
/// nvidia-container-cli: a GPU that is not there, a requirement that does not hold.
Result<ContainerEdits> plan(const DriverRequest& request, const Inventory& inventory, const PlanContext& context,
                            LogSink& log);

/// The answer on a node without: an image that asks for GPUs by itself starts without them, as CUDA images do on any
/// node, and the log says so; a job that asks gets an error (ErrorKind::not_found) that says what is missing.
Result<void> without_driver(const DriverRequest& request, const HostRoots& roots, LogSink& log);

// What follows is for the parts of plan(): each adds its edits.

constexpr const char* kOrigin = "NVIDIA_VISIBLE_DEVICES";

/// Everything that the parts look at.
struct Planning {
  const DriverRequest& request;
  const Inventory& inventory;
  const PlanContext& context;
  const Selection& gpus;
  /// With what follows from what was asked for: video needs the libraries of compute, display those of graphics.
  CapabilitySet capabilities = 0;
  LogSink& log;

  [[nodiscard]] bool has(CapabilitySet any) const { return (capabilities & any) != 0; }
  /// A path of the driver or of a device, as the host names it.
  [[nodiscard]] std::string driver_path(const std::string& path) const {
    return HostRoots::host_path(context.roots.driver_path, path);
  }
  [[nodiscard]] std::string device_path(const std::string& path) const {
    return HostRoots::host_path(context.roots.device_path, path);
  }
};

/// plan_devices.cpp: nodes of GPUs, MIG instances, control, graphics, and those that further variables ask for.
Result<void> plan_devices(const Planning& planning, ContainerEdits& edits);

/// plan_files.cpp: libraries with their links, programs, firmware, configuration, sockets.
void plan_files(const Planning& planning, ContainerEdits& edits);

/// plan_files.cpp: where an image keeps its libraries.
struct LibraryPlaces {
  std::string directory;        ///< "/usr/lib/x86_64-linux-gnu", "/usr/lib64"
  std::string directory_32bit;  ///< empty: the image has no place for them
};
LibraryPlaces library_places(const RootDir& root);

}  // namespace situla::nvidia
