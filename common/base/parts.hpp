// Which optional parts was this Situla built with? A packager chooses them (packaging/README.md).
#pragma once

#include <cstdint>
#include <string>

#include "common/base/error.hpp"

namespace situla {

enum class Part : uint8_t {
  gpu,   ///< SITULA_GPU: NVIDIA GPUs by their variables
  cdi,   ///< SITULA_CDI: devices by CDI specifications
  fuse,  ///< SITULA_FUSE: the FUSE server of images
};

bool built_in(Part part);

/// "this Situla was built without its FUSE server of images"
std::string not_built_in(Part part);
/// ErrorKind::unsupported; `what` as in "serve the image".
Error not_built_in(Part part, const std::string& what);

/// "gpu, cdi": for `situla version`; empty when everything is there.
std::string missing_parts();

}  // namespace situla
