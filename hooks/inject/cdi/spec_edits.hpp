// What do a specification's mounts, device nodes and hooks become?
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

// mount_edits.cpp
Result<void> add_node(const DeviceNode& node, const Wish& wish, const CdiContext& context, ContainerEdits& edits,
                      Count& count, LogSink& log);
Result<void> add_mount(const Mount& mount, const Wish& wish, const CdiContext& context, ContainerEdits& edits,
                       Count& count, LogSink& log);

// native_hooks.cpp: programs that specifications want to be run and that are not needed, as their work is done here.
/// Adds what NVIDIA's and AMD's hook programs would have done. false: not one of theirs, it has to be run.
Result<bool> add_native_hook(const Hook& hook, const std::string& file, const CdiContext& context,
                             ContainerEdits& edits, LogSink& log);

/// The hook update-application-profile looks at the container's nodes, so it comes when all of them are known.
void add_application_profile(ContainerEdits& edits);
bool wants_application_profile(const Hook& hook);

}  // namespace situla::cdi
