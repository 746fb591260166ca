// Which source has the image that a request names?
#pragma once

#include <memory>

#include "common/base/result.hpp"
#include "hooks/progress/progress.hpp"
#include "hooks/request/request.hpp"
#include "hooks/sources/image_source.hpp"

namespace situla {

/// The source that a request names. request and progress must outlive it; progress.cancelled() is asked while waiting.
Result<std::unique_ptr<ImageSource>> open_source(const ImportRequest& request, Progress& progress);

/// `docker://` and references without a scheme.
Result<std::unique_ptr<ImageSource>> open_registry_source(const ImportRequest& request, Progress& progress);
/// The archive that `docker save` would make of an image which an engine on this machine has. It goes to a nameless
/// file in ENROOT_TEMP_PATH when the image is resolved: layers are read from the top down, and an engine gives them in
/// another order.
Result<std::unique_ptr<ImageSource>> open_engine_source(const ImportRequest& request, Progress& progress);

}  // namespace situla
