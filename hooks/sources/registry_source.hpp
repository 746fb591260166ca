// How does an image in a registry look to the rest of the import? An ImageSource over HTTP.
#pragma once

#include <memory>

#include "common/base/result.hpp"
#include "common/spec/image_reference.hpp"
#include "hooks/sources/image_source.hpp"

namespace situla {

/// `docker://` and references without a scheme. request and progress must outlive the source.
Result<std::unique_ptr<ImageSource>> open_registry_source(const ImportRequest& request, Progress& progress);

}  // namespace situla
