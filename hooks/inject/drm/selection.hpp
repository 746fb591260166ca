// Which of a vendor's GPUs may this step use, and which of these are meant?
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "hooks/inject/drm/render_gpus.hpp"

namespace situla::drm {

/// What the kernel says to opening a node, to read and write.
enum class Access : uint8_t {
  granted,
  forbidden,  ///< by the device cgroup (EPERM): the step was not given it
  denied,     ///< by owner, group and mode, which are asked first
  missing     ///< there is no such node
};

using AccessCheck = std::function<Access(const std::string& path)>;

/// access(2), which asks the device cgroup as well and opens nothing. `devices` has to outlive it.
AccessCheck kernel_access(const RootDir& devices);

/// Pointers into a list of GPUs, in its order.
using Choice = std::vector<const RenderGpu*>;

struct Usable {
  Choice gpus;
  size_t denied = 0;  ///< not forbidden, but owner, group and mode of the render node do not admit this user
};

/// Of those of one vendor, the ones that the device cgroup does not forbid and the user may open. A GPU is one thing:
/// Slurm knows it by its render node (AutoDetect=rsmi) or by its card's (AutoDetect=oneapi), and forbids only that one.
/// Slurm's own numbers choose nothing: SLURM_STEP_GPUS has those of one task where tasks are bound to GPUs, and the
/// variables of a runtime count what the container has.
Usable usable_gpus(const Choice& of_vendor, const AccessCheck& access);

/// What `names` mean among the usable ones: all, a number or a range of them ("0-3"), "renderD128", a PCI address,
/// AMD's unique id ("GPU-...", "0x..."). ErrorKind::usage: "device error: X: unknown device"; the hint lists what there
/// is.
Result<Choice> select_gpus(const std::vector<std::string>& names, const Choice& usable);

}  // namespace situla::drm
