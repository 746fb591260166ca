// How is an image read that an engine on this machine has? As the archive that `docker save` would make of it.
#pragma once

#include <memory>

#include "common/base/result.hpp"
#include "common/spec/environment.hpp"
#include "common/spec/image_reference.hpp"
#include "hooks/config/enroot_config.hpp"
#include "hooks/sources/image_source.hpp"

namespace situla {

/// The archive goes to a nameless file in ENROOT_TEMP_PATH when the image is resolved: layers are read from the top
/// down, and an engine gives them in another order.
Result<std::unique_ptr<ImageSource>> open_engine_source(const ImportRequest& request, Progress& progress);

}  // namespace situla
