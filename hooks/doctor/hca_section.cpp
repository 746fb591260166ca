#include "common/base/text.hpp"
#include "hooks/doctor/device_sections.hpp"
#include "hooks/inject/hca/adapters.hpp"

namespace situla::doctor {
namespace {

constexpr const char* kConnectionManager = "/dev/infiniband/rdma_cm";

std::string port_text(const hca::Port& port) {
  std::vector<std::string> words = {"port " + port.number};
  for (const std::string& word : {port.link_layer, port.state, port.rate})
    if (!word.empty()) words.push_back(word);
  return printable(join(words, " "));
}

Check adapter_line(const hca::Adapter& adapter, size_t index, const RootDir& devices) {
  Check line{"hca " + std::to_string(index), State::ok, "", ""};
  line.facts = {{"index", std::to_string(index)},
                {"adapter", printable(adapter.name)},
                {"busId", adapter.pci_address},
                {"driver", printable(adapter.driver)},
                {"node", printable(adapter.node)},
                {"virtualFunction", adapter.virtual_function ? "yes" : "no"},
                {"usable", adapter.obstacle.empty() ? "yes" : "no"}};
  std::vector<std::string> parts = {printable(adapter.name.empty() ? adapter.verbs : adapter.name)};
  if (!adapter.pci_address.empty()) parts.push_back(adapter.pci_address + (adapter.virtual_function ? " (VF)" : ""));
  if (!adapter.driver.empty()) parts.push_back(printable(adapter.driver));
  parts.push_back(printable(adapter.node));
  for (const hca::Port& port : hca::ports(devices, adapter)) parts.push_back(port_text(port));
  line.found = join(parts, ", ");
  if (adapter.obstacle.empty()) return line;
  line.found += "; not for containers: " + printable(adapter.obstacle);
  if (adapter.directory.empty()) return line;  // that is how representors are
  line.state = State::warn;
  line.fix =
      "nodes in /dev/infiniband are made by udev, open to all by rdma-core's rules; is the module ib_uverbs "
      "loaded?";
  return line;
}

}  // namespace

Section hca_section(const HostRoots& roots) {
  Section section{"hcas", "network adapters with verbs", {}};
  const Result<std::vector<hca::Adapter>> adapters = hca::adapters(roots.devices);
  if (!adapters) {
    section.lines.push_back(
        {"hca", State::warn, adapters.error().message(), "fix it, or start containers without network adapters"});
    return section;
  }
  if (adapters->empty()) section.lines.push_back({"hca", State::ok, "none on this node", ""});
  for (size_t i = 0; i < adapters->size(); ++i) section.lines.push_back(adapter_line((*adapters)[i], i, roots.devices));
  if (!adapters->empty() && !roots.devices.exists(kConnectionManager))
    section.lines.push_back({"rdma_cm", State::warn,
                             std::string(kConnectionManager) + " does not exist: no RDMA connections by address",
                             "modprobe rdma_ucm"});
  return section;
}

}  // namespace situla::doctor
