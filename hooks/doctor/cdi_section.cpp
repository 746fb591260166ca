#include <map>

#include "common/base/text.hpp"
#include "hooks/doctor/device_sections.hpp"
#include "hooks/inject/cdi/registry.hpp"

namespace situla::doctor {

Section cdi_section(const std::vector<std::string>& directories) {
  Section section{"cdi", "CDI specifications", {}};
  const CdiRegistry registry = CdiRegistry::load(directories);
  std::map<std::string, std::vector<std::string>> names;  // by file
  for (const CdiDeviceEntry& device : registry.devices()) names[device.file].push_back(device.name);
  for (const auto& [file, devices] : names) {
    Check line{"file", State::ok, printable(file + ": " + join(devices, ", ")), ""};
    line.facts = {{"file", printable(file)}, {"devices", printable(join(devices, ","))}};
    section.lines.push_back(std::move(line));
  }
  for (const Error& error : registry.errors())
    section.lines.push_back({"error", State::warn, printable(error.message()),
                             error.hint().empty() ? "correct or remove the file" : printable(error.hint())});
  if (section.lines.empty())
    section.lines.push_back({"files", State::ok, "none in " + printable(join(directories, ", ")), ""});
  return section;
}

}  // namespace situla::doctor
