// Which programs that specifications want to be run are not needed, because their work is done here?
#pragma once

#include "hooks/inject/cdi/context.hpp"
#include "hooks/inject/cdi/spec.hpp"

namespace situla::cdi {

/// Adds what NVIDIA's and AMD's hook programs would have done. false: not one of theirs, it has to be run.
Result<bool> add_native_hook(const Hook& hook, const std::string& file, const CdiContext& context,
                             ContainerEdits& edits, LogSink& log);

/// The hook update-application-profile looks at the container's nodes, so it comes when all of them are known.
void add_application_profile(ContainerEdits& edits);
bool wants_application_profile(const Hook& hook);

}  // namespace situla::cdi
