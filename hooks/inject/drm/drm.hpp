// What has to change in a container so that it can use the GPUs of AMD and Intel that it was given? Nodes: the
// libraries that use them (ROCm, Level Zero) come with the image, and the kernel's interface is stable.
#pragma once

#include <string>
#include <vector>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/sys/root_dir.hpp"
#include "hooks/inject/drm/selection.hpp"
#include "hooks/inject/edits/edits.hpp"
#include "hooks/inject/edits/host_roots.hpp"
#include "hooks/inject/gpu/request.hpp"

namespace situla::drm {

/// What is asked for of one vendor.
struct Wanted {
  const gpu::Vendor* vendor = nullptr;  ///< &gpu::kAmd or &gpu::kIntel
  gpu::Request request;
  std::string origin;  ///< who asks, for errors: "AMD_VISIBLE_DEVICES"
};

struct Scene {
  const HostRoots& roots;
  const RootDir& root;  ///< the container's, /dev mounted
  bool hide = true;     ///< hide_gpus
  AccessCheck access;   ///< kernel_access(roots.devices)
  LogSink& log;
};

/// The nodes of the GPUs that are meant, /dev/kfd with AMD's, and the links in /dev/dri/by-path, by which Intel's
/// runtime finds them. No node that this process may not open. Where the container would have the node of a GPU that is
/// not its own, and could open it, /dev/dri is covered and gets all but these; it stays as it is where there is none.
/// Of a vendor whose GPUs the job refuses, all are not its own. Where only Slurm asks, what cannot be done is a
/// warning, and nothing is done at all where the GPUs may be another vendor's: NVIDIA's driver is loaded, or the node
/// has GPUs of both. Only looks; edits/apply.hpp makes it true. ErrorKind::not_found: the job asks, and the node has
/// none of that vendor. ErrorKind::usage: a name that means none of the job's.
Result<ContainerEdits> edits(const std::vector<Wanted>& wanted, const Scene& scene);

/// Whether the node has a GPU of the vendor, whoever may use it.
bool has_gpus(const RootDir& devices, const gpu::Vendor& vendor);

}  // namespace situla::drm
