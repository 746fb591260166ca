#include "common/base/parts.hpp"
#include "hooks/inject/device_sources.hpp"

namespace situla {

std::string why_no_gpus(const HostRoots&) {
  return not_built_in(Part::gpu);
}

Result<ContainerEdits> driver_edits(const nvidia::DriverRequest& request, const HookContext& context) {
  if (request.asker == nvidia::Asker::job)
    return fail(not_built_in(Part::gpu, "give the container what NVIDIA_VISIBLE_DEVICES asks for"));
  context.log.info("the image asks for NVIDIA GPUs, and " + not_built_in(Part::gpu));
  return ContainerEdits();
}

}  // namespace situla
