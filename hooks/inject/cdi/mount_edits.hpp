// What do a specification's mounts and device nodes become?
#pragma once

#include "hooks/inject/cdi/context.hpp"
#include "hooks/inject/cdi/spec.hpp"

namespace situla::cdi {

/// What to do with devices that the step's device cgroup denies.
enum class Denied {
  skip,  ///< "all" means all that the step has
  warn,  ///< the specification's own
  fail   ///< named by the user
};

/// Who wants it, for messages, and how much it matters.
struct Wish {
  const Spec& spec;
  std::string name;  ///< "nvidia.com/gpu=0", or the kind for what all of its devices share
  Denied denied = Denied::fail;
};

/// Something was left out, or taken.
struct Count {
  size_t devices = 0, denied = 0;
};

Result<void> add_node(const DeviceNode& node, const Wish& wish, const CdiContext& context, ContainerEdits& edits,
                      Count& count, LogSink& log);
Result<void> add_mount(const Mount& mount, const Wish& wish, const CdiContext& context, ContainerEdits& edits,
                       Count& count, LogSink& log);

}  // namespace situla::cdi
