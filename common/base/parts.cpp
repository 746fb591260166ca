#include "common/base/parts.hpp"

#include <array>
#include <string_view>

namespace situla {
namespace {

struct Entry {
  Part part;
  bool built_in;
  std::string_view name;
  std::string_view what;
  std::string_view option;
};

constexpr std::array<Entry, 3> kParts = {{
    {Part::gpu, SITULA_GPU != 0, "gpu", "NVIDIA GPUs", "SITULA_GPU"},
    {Part::cdi, SITULA_CDI != 0, "cdi", "CDI specifications", "SITULA_CDI"},
    {Part::fuse, SITULA_FUSE != 0, "fuse", "its FUSE server of images", "SITULA_FUSE"},
}};

const Entry& entry(Part part) {
  return kParts[static_cast<size_t>(part)];
}

}  // namespace

bool built_in(Part part) {
  return entry(part).built_in;
}

std::string not_built_in(Part part) {
  return "this Situla was built without " + std::string(entry(part).what);
}

Error not_built_in(Part part, const std::string& what) {
  return Error(ErrorKind::unsupported, what + ": " + not_built_in(part))
      .with_code(ErrorCode::installation)
      .with_hint("install a build that was configured with " + std::string(entry(part).option) + "=ON");
}

std::string missing_parts() {
  std::string names;
  for (const Entry& part : kParts)
    if (!part.built_in) names += (names.empty() ? "" : ", ") + std::string(part.name);
  return names;
}

}  // namespace situla
