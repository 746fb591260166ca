#include "hooks/import/image_source.hpp"

#include "hooks/import/registry_source.hpp"

namespace situla {

Result<std::unique_ptr<ImageSource>> open_source(const ImportRequest& request, Progress& progress) {
  return open_registry_source(request, progress);
}

}  // namespace situla
