#include "common/base/parts.hpp"
#include "hooks/doctor/device_sections.hpp"

namespace situla::doctor {

Section cdi_section(const std::vector<std::string>&) {
  return {"cdi", "CDI specifications", {{"files", State::ok, not_built_in(Part::cdi), ""}}};
}

}  // namespace situla::doctor
