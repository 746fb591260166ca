#include "hooks/inject/hca/adapters.hpp"

#include <algorithm>
#include <climits>
#include <filesystem>
#include <tuple>

#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/fd_path.hpp"
#include "hooks/inject/sysfs/sysfs.hpp"

namespace situla::hca {
namespace {

using sysfs::attribute;
using sysfs::device_directory;
using sysfs::function_directory;
using sysfs::names_in;
using sysfs::read_link;

constexpr std::string_view kVerbsClass = "/sys/class/infiniband_verbs";
constexpr std::string_view kAdapterClass = "/sys/class/infiniband";
constexpr std::string_view kManagementClass = "/sys/class/infiniband_mad";
constexpr size_t kMaxUevent = 4096;  ///< bytes; sysfs gives a page at most

bool is_node_name(std::string_view text) {
  const std::vector<std::string_view> parts = split(text, '/');
  return std::all_of(parts.begin(), parts.end(), is_file_name);
}

std::optional<uint32_t> device_number_part(std::string_view text) {
  const std::optional<uint64_t> number = parse_unsigned(text);
  if (!number || *number > UINT32_MAX) return std::nullopt;
  return static_cast<uint32_t>(*number);
}

Uevent uevent(const RootDir& root, const std::string& directory) {
  const Result<std::string> text = root.read_file(directory + "/uevent", kMaxUevent);
  return text ? parse_uevent(*text) : Uevent{};
}

std::string obstacle(const RootDir& root, const Adapter& adapter) {
  if (adapter.directory.empty())
    return "no InfiniBand device " + (adapter.name.empty() ? "" : adapter.name + " ") +
           "is to be seen for it: it is a representor, or belongs to another network namespace";
  const Result<UniqueFd> node = root.resolve(adapter.node);
  if (!node) return adapter.node + " does not exist";
  // The device cgroup has its say here, too, and nothing is opened.
  if (access(fd_path(node->get()).c_str(), R_OK | W_OK) != 0)
    return Error::from_errno(errno, "no access to " + adapter.node).message();
  return "";
}

Adapter look_at(const RootDir& root, const std::string& verbs, const std::string& directory) {
  Adapter adapter;
  adapter.verbs = verbs;
  adapter.verbs_directory = directory;
  adapter.name = attribute(root, directory + "/ibdev");
  if (!is_file_name(adapter.name)) adapter.name.clear();
  if (!adapter.name.empty()) adapter.directory = device_directory(root, kAdapterClass, adapter.name);
  const Uevent event = uevent(root, directory);
  adapter.node = "/dev/" + (event.node.empty() ? "infiniband/" + verbs : event.node);
  adapter.number = event.number;
  const std::string function = function_directory(directory);
  if (!function.empty()) {
    adapter.pci_address = std::filesystem::path(function).filename().string();
    const std::optional<std::string> driver = read_link(root, function + "/driver");
    if (driver) adapter.driver = std::filesystem::path(*driver).filename().string();
    adapter.virtual_function = read_link(root, function + "/physfn").has_value();
  }
  adapter.obstacle = obstacle(root, adapter);
  return adapter;
}

Result<void> add_management(const RootDir& root, std::vector<Adapter>& all) {
  TRY_ASSIGN(const std::vector<std::string> names, names_in(root, kManagementClass));
  for (const std::string& name : names) {
    const std::string directory = device_directory(root, kManagementClass, name);
    if (directory.empty()) continue;
    const std::string owner = attribute(root, directory + "/ibdev");
    const auto adapter = std::find_if(all.begin(), all.end(), [&](const Adapter& one) { return one.name == owner; });
    if (owner.empty() || adapter == all.end()) continue;
    const Uevent event = uevent(root, directory);
    adapter->management.push_back(
        {"/dev/" + (event.node.empty() ? "infiniband/" + name : event.node), event.number, directory});
  }
  return {};
}

/// enroot counts what the glob /sys/bus/pci/drivers/mlx?_core/*/infiniband_verbs/* finds.
bool counted_by_enroot(const Adapter& adapter) {
  if (adapter.driver != "mlx4_core" && adapter.driver != "mlx5_core") return false;
  return adapter.verbs_directory.ends_with("/" + adapter.pci_address + "/infiniband_verbs/" + adapter.verbs);
}

}  // namespace

bool is_file_name(std::string_view text) {
  if (text.empty() || text == "." || text == ".." || text.size() > NAME_MAX) return false;
  return std::none_of(text.begin(), text.end(), [](char letter) {
    const auto byte = static_cast<unsigned char>(letter);
    return letter == '/' || byte < 0x20 || byte == 0x7f;
  });
}

Uevent parse_uevent(std::string_view text) {
  Uevent found;
  std::optional<uint32_t> major;
  std::optional<uint32_t> minor;
  for (const std::string_view line : split(text, '\n')) {
    const auto field = cut(line, '=');
    if (!field) continue;
    const auto& [key, value] = *field;
    if (key == "MAJOR") major = device_number_part(value);
    if (key == "MINOR") minor = device_number_part(value);
    if (key == "NAME" && is_file_name(value)) found.name = value;
    if (key == "DEVNAME" && is_node_name(value)) found.node = value;
  }
  if (major && minor) found.number = DeviceNumber{'c', *major, *minor};
  return found;
}

Result<std::vector<Adapter>> adapters(const RootDir& devices) {
  std::vector<Adapter> all;
  TRY_ASSIGN(const std::vector<std::string> names, names_in(devices, kVerbsClass));
  for (const std::string& name : names) {
    const std::string directory = device_directory(devices, kVerbsClass, name);
    if (!directory.empty()) all.push_back(look_at(devices, name, directory));  // abi_version is none
  }
  TRY(add_management(devices, all));
  const auto place = [](const Adapter& one) {
    return std::tuple(!counted_by_enroot(one), std::string_view(one.driver), std::string_view(one.pci_address),
                      one.verbs.size(), std::string_view(one.verbs));  // uverbs9 before uverbs10
  };
  std::sort(all.begin(), all.end(), [&](const Adapter& a, const Adapter& b) { return place(a) < place(b); });
  return all;
}

std::vector<Port> ports(const RootDir& devices, const Adapter& adapter) {
  std::vector<Port> all;
  if (adapter.directory.empty()) return all;
  const Result<std::vector<std::string>> numbers = names_in(devices, adapter.directory + "/ports");
  if (!numbers) return all;
  for (const std::string& number : *numbers) {
    const std::string directory = adapter.directory + "/ports/" + number + "/";
    const std::string state = attribute(devices, directory + "state");  // "4: ACTIVE"
    const auto words = cut(state, ':');
    all.push_back({number, attribute(devices, directory + "link_layer"),
                   words ? std::string(trim(words->second)) : state, attribute(devices, directory + "rate")});
  }
  return all;
}

}  // namespace situla::hca
