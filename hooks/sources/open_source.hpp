// Which source has the image that a request names?
#pragma once

#include <memory>

#include "common/base/result.hpp"
#include "hooks/progress/progress.hpp"
#include "hooks/request/request.hpp"
#include "hooks/sources/image_source.hpp"

namespace situla {

/// The source that a request names. cancelled is asked while waiting.
Result<std::unique_ptr<ImageSource>> open_source(const ImportRequest& request, Progress& progress);

}  // namespace situla
