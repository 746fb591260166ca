#include "hooks/inject/hca/hca.hpp"

#include <algorithm>
#include <array>

#include "common/base/text.hpp"

namespace situla::hca {
namespace {

constexpr const char* kVariable = "MELLANOX_VISIBLE_DEVICES";
constexpr const char* kMountDriver = "MELLANOX_MOUNT_DRIVER";
constexpr std::string_view kKind = "situla.dev/hca=";
constexpr const char* kConnectionManager = "/dev/infiniband/rdma_cm";
constexpr MountFlags kHardened{.no_suid = true, .no_dev = true, .no_exec = true};
constexpr MountFlags kHardenedReadOnly{.read_only = true, .no_suid = true, .no_dev = true, .no_exec = true};

/// Pointers into a list of adapters.
using Choice = std::vector<const Adapter*>;

void add_device(ContainerEdits& edits, const std::string& path, const std::optional<DeviceNumber>& number,
                const HostRoots& roots, const std::string& origin) {
  add_step(edits, {.kind = StepKind::device,
                   .source = HostRoots::host_path(roots.device_path, path),
                   .target = path,
                   .number = roots.real_devices() ? number : std::nullopt,
                   .origin = origin});
}

/// librdmacm needs it; verbs work without.
void add_connection_manager(ContainerEdits& edits, const HostRoots& roots, const std::string& origin, LogSink& log) {
  if (!roots.devices.exists(kConnectionManager)) {
    log.warning(std::string(kConnectionManager) + " does not exist on this node, so RDMA connections by address will " +
                "not work; is the kernel module rdma_ucm loaded?");
    return;
  }
  const Result<std::string> text = roots.devices.read_file("/sys/class/misc/rdma_cm/uevent");
  add_device(edits, kConnectionManager, text ? parse_uevent(*text).number : std::nullopt, roots, origin);
}

struct SysfsClass {
  const char* path;
  OnFailure on_failure;
};

/// infiniband_cm is gone from newer kernels, infiniband_mad comes with a module; the two others show the adapters.
constexpr std::array<SysfsClass, 4> kClasses = {{{"/sys/class/infiniband", OnFailure::fail},
                                                 {"/sys/class/infiniband_verbs", OnFailure::fail},
                                                 {"/sys/class/infiniband_cm", OnFailure::ignore},
                                                 {"/sys/class/infiniband_mad", OnFailure::warn}}};

void hide_all(ContainerEdits& edits, const HostRoots& roots) {
  for (const auto& [path, on_failure] : kClasses) {
    if (!roots.devices.exists(path)) continue;
    add_step(edits, {.kind = StepKind::cover,
                     .target = path,
                     .on_failure = on_failure,
                     .flags = kHardened,
                     .parameters = {{"mode", "0755"}},
                     .origin = kVariable});
    const std::string version = std::string(path) + "/abi_version";
    if (!roots.devices.exists(version)) continue;
    add_step(edits, {.kind = StepKind::host_file,
                     .source = HostRoots::host_path(roots.device_path, version),
                     .target = version,
                     .on_failure = on_failure,
                     .flags = kHardenedReadOnly,
                     .source_type = SourceType::regular,
                     .origin = kVariable});
  }
}

/// As the kernel writes it: relative, so that it holds wherever sysfs is mounted.
FileChange class_link(const std::string& class_directory, const std::string& directory) {
  const std::string name = directory.substr(directory.rfind('/') + 1);
  return {FileChange::Kind::link, class_directory + "/" + name, "../.." + directory.substr(std::string("/sys").size()),
          0777};
}

void show(ContainerEdits& edits, const Adapter& adapter, const Scene& scene) {
  add_device(edits, adapter.node, adapter.number, scene.roots, kVariable);
  edits.files.push_back(class_link("/sys/class/infiniband", adapter.directory));
  edits.files.push_back(class_link("/sys/class/infiniband_verbs", adapter.verbs_directory));
  if (!scene.real_root) return;
  for (const ManagementNode& node : adapter.management) {
    if (!scene.roots.devices.exists(node.path)) continue;
    add_device(edits, node.path, node.number, scene.roots, kVariable);
    edits.files.push_back(class_link("/sys/class/infiniband_mad", node.directory));
  }
}

std::string title(const Adapter& adapter) {
  return (adapter.name.empty() ? adapter.verbs : adapter.name) +
         (adapter.pci_address.empty() ? "" : " (" + adapter.pci_address + ")");
}

Result<const Adapter*> usable(const Adapter& adapter) {
  if (adapter.obstacle.empty()) return &adapter;
  return fail(
      Error(ErrorKind::not_found, "network adapter " + printable(title(adapter)) + ": " + printable(adapter.obstacle))
          .with_code(ErrorCode::gpu_request));
}

Choice all_usable(const std::vector<Adapter>& all, LogSink& log) {
  Choice chosen;
  for (const Adapter& adapter : all)
    if (adapter.obstacle.empty())
      chosen.push_back(&adapter);
    else
      log.info("leaving out network adapter " + printable(title(adapter)) + ": " + printable(adapter.obstacle));
  return chosen;
}

/// enroot takes "all" only as the whole value, and lets blanks separate, too.
Result<Choice> choose_by_index(const std::vector<Adapter>& all, std::string_view value) {
  std::string words(value);
  std::replace(words.begin(), words.end(), ',', ' ');
  Choice chosen;
  for (const std::string_view word : split_words(words)) {
    const std::optional<uint64_t> index = parse_unsigned(word);
    if (!index || *index >= all.size())
      return fail(Error(ErrorKind::usage, "Unknown MELLANOX device id: " + printable(word))
                      .with_code(ErrorCode::gpu_request)
                      .with_hint("this node has " + list(all)));
    TRY_ASSIGN(const Adapter* adapter, usable(all[*index]));
    if (std::find(chosen.begin(), chosen.end(), adapter) == chosen.end()) chosen.push_back(adapter);
  }
  return chosen;
}

/// What one name of the kind means.
Result<Choice> choose_by_name(const std::vector<Adapter>& all, const std::string& name, LogSink& log) {
  const std::string_view wanted = std::string_view(name).substr(kKind.size());
  if (wanted == "all") return all_usable(all, log);
  Choice chosen;
  const std::optional<uint64_t> index = parse_unsigned(wanted);
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].name != wanted && all[i].pci_address != wanted && index != i) continue;
    TRY_ASSIGN(const Adapter* adapter, usable(all[i]));
    chosen.push_back(adapter);
  }
  return chosen;
}

Error no_adapter(const std::string& who) {
  return Error(ErrorKind::not_found, who + ": this node has no network adapter with verbs that can be used")
      .with_code(ErrorCode::gpu_request)
      .with_hint("situla doctor shows the adapters there are");
}

}  // namespace

std::string list(const std::vector<Adapter>& all) {
  if (all.empty()) return "none";
  std::vector<std::string> texts;
  for (size_t i = 0; i < all.size(); ++i) texts.push_back(std::to_string(i) + ": " + printable(title(all[i])));
  return join(texts, ", ");
}

Result<ContainerEdits> edits_by_variable(const Scene& scene) {
  ContainerEdits edits;
  const auto by_host = scene.host.get(kVariable);
  const std::string value(by_host ? *by_host : scene.container.get(kVariable).value_or(""));
  if (value.empty() || value == "void" || value == "none") return edits;
  TRY_ASSIGN(const std::vector<Adapter> all, adapters(scene.roots.devices));
  Choice chosen;
  if (value == "all" || all.empty()) {
    chosen = all_usable(all, scene.log);
    if (chosen.empty() && by_host) return fail(no_adapter(kVariable + ("=" + printable(value))));
    if (chosen.empty()) {
      scene.log.info("the image asks for network adapters (" + std::string(kVariable) + "=" + printable(value) +
                     "), and this node has none");
      return edits;
    }
  } else {
    TRY_ASSIGN(chosen, choose_by_index(all, value));
  }
  // Older releases of enroot's hook did, with the risk that the host's provider and the image's libibverbs differ.
  if (scene.host.has(kMountDriver) || scene.container.has(kMountDriver))
    scene.log.warning(std::string(kMountDriver) +
                      " has no effect: the image's own rdma-core is used, and none of the " +
                      "host's libraries are mounted");
  hide_all(edits, scene.roots);
  add_connection_manager(edits, scene.roots, kVariable, scene.log);
  for (const Adapter* adapter : chosen) show(edits, *adapter, scene);
  return edits;
}

bool is_device(std::string_view name) {
  return name.starts_with(kKind);
}

Result<ContainerEdits> edits_by_name(const std::vector<std::string>& names, const HostRoots& roots, LogSink& log) {
  ContainerEdits edits;
  if (names.empty()) return edits;
  TRY_ASSIGN(const std::vector<Adapter> all, adapters(roots.devices));
  for (const std::string& name : names) {
    TRY_ASSIGN(const Choice chosen, choose_by_name(all, name, log));
    if (chosen.empty() && name.ends_with("=all")) return fail(no_adapter(name));
    if (chosen.empty())
      return fail(Error(ErrorKind::not_found, "unknown network adapter " + printable(name))
                      .with_code(ErrorCode::gpu_request)
                      .with_hint("this node has " + list(all)));
    for (const Adapter* adapter : chosen) add_device(edits, adapter->node, adapter->number, roots, name);
  }
  add_connection_manager(edits, roots, names.front(), log);
  return edits;
}

}  // namespace situla::hca
