#include "hooks/inject/inventory/inventory_cache.hpp"

#include <cstdlib>
#include <ctime>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/identity.hpp"
#include "hooks/inject/inventory/proc_inventory.hpp"

namespace situla::nvidia {
namespace {

constexpr size_t kMaxFileBytes = size_t{8} << 20U;
constexpr uid_t kOverflowUid = 65534;

std::vector<std::string> key_lines(const std::string& key) {
  std::vector<std::string> lines;
  for (const std::string_view line : split_nonempty(key, '\n')) lines.push_back(printable(line));
  return lines;
}

/// Identity of what the dynamic linker's cache is now; a driver that is installed anew changes it.
std::string library_cache_key(const RootDir& driver) {
  const auto fd = driver.resolve("/etc/ld.so.cache");
  struct stat status {};
  if (!fd || fstat(fd->get(), &status) != 0) return "none";
  return std::to_string(status.st_dev) + " " + std::to_string(status.st_ino) + " " + std::to_string(status.st_size) +
         " " + std::to_string(status.st_mtim.tv_sec) + "." + std::to_string(status.st_mtim.tv_nsec);
}

/// "gpu0: gi1/ci0 gi2/ci0"; also a GPU that has lost its last instance differs from one that has some.
void add_mig_instances(std::string& key, const RootDir& devices) {
  const std::string base = std::string(kDriverProc) + "/capabilities";
  for (const std::string& name : names_in(devices, base)) {
    const auto minor = name.starts_with("gpu") ? parse_unsigned(name.substr(3)) : std::nullopt;
    if (!minor) continue;
    std::string line;
    for (const GpuInstance& instance : read_gpu_instances(devices, static_cast<uint32_t>(*minor)))
      for (const uint32_t compute : instance.compute_instances)
        line += " gi" + std::to_string(instance.number) + "/ci" + std::to_string(compute);
    if (!line.empty()) key += name + ":" + line + "\n";
  }
}

/// Nobody but root and this user can have written it. In a container's user namespace root's files belong to the
/// overflow uid, and so do those of everybody else: the directory, which is looked at as well, is what keeps them out.
Result<void> trust(int fd, const std::string& path) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return fail_errno(errno, "stat " + path);
  const uid_t owner = status.st_uid;
  const bool foreign_root = owner == kOverflowUid && !in_initial_user_namespace();
  if ((owner != 0 && owner != geteuid() && !foreign_root) || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return fail(ErrorKind::denied, path + " belongs to somebody else, or others may write it");
  return {};
}

Result<Inventory> read_kept(const std::string& path, const std::string& key) {
  const size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  TRY_ASSIGN(const UniqueFd parent, open_file(directory, O_PATH | O_DIRECTORY));
  TRY(trust(parent.get(), directory));
  TRY_ASSIGN(const UniqueFd file,
             open_file_at(parent.get(), path.substr(slash + 1), O_RDONLY | O_NOFOLLOW | O_NONBLOCK));
  TRY(trust(file.get(), path));
  TRY_ASSIGN(const std::string text, read_all(file.get(), kMaxFileBytes));
  TRY_ASSIGN(InventoryDocument kept, parse_inventory(text));
  if (kept.key != key_lines(key))
    return fail(ErrorKind::failure, "the driver, its GPUs or their MIG devices are not those of " + path);
  return std::move(kept.inventory);
}

}  // namespace

std::string serialize(const InventoryDocument& document) {
  return to_text(JsonWriter::object(document), {.indent = 1});
}

Result<InventoryDocument> parse_inventory(std::string_view text) {
  const auto json = parse_json(text);
  if (!json) return fail(Error(json.error()).with_context("read the inventory"));
  const Json* version = json->find("version");
  if (version != nullptr && version->as_number() != InventoryDocument().version)
    return fail(ErrorKind::corrupt, "read the inventory: a version that this program does not know");
  return JsonReader::object<InventoryDocument>(*json, "the inventory");
}

std::string inventory_key(const HostRoots& roots) {
  const auto text = [&](const std::string& path) { return roots.devices.read_file(path).value_or("none\n"); };
  std::string key = "roots " + roots.driver_path + " " + roots.device_path + "\n";
  key += "boot " + text("/proc/sys/kernel/random/boot_id");
  key += text(std::string(kDriverProc) + "/version");
  // The management library says nothing before there is one: what was found until then lacks UUIDs and versions.
  key += std::string("control node ") + (roots.devices.exists("/dev/nvidiactl") ? "there" : "missing") + "\n";
  key += "libraries " + library_cache_key(roots.driver) + "\n";
  key += "gpus " + join(names_in(roots.devices, std::string(kDriverProc) + "/gpus"), " ") + "\n";
  add_mig_instances(key, roots.devices);
  return key;
}

bool kept_inventory_is_right(const HostRoots& roots, const std::string& file) {
  // What a GPU or the management library did not answer then it may answer now; but where it never does, it is not
  // waited for at the end of each job.
  constexpr time_t kAskedAgainAfter = 600;  // seconds
  const auto kept = read_kept(file, inventory_key(roots));
  if (!kept) return false;
  const size_t present = names_in(roots.devices, std::string(kDriverProc) + "/gpus").size();
  if (kept->from_nvml && kept->gpus.size() >= present) return true;
  struct stat status {};
  return stat(file.c_str(), &status) == 0 && std::abs(std::time(nullptr) - status.st_mtim.tv_sec) < kAskedAgainAfter;
}

Result<NodeInventory> node_inventory(const HostRoots& roots, const std::string& file, const GatherOptions& options,
                                     LogSink& log) {
  NodeInventory found;
  if (has_driver(roots)) {
    auto kept = read_kept(file, inventory_key(roots));
    if (kept) {
      found.inventory = std::move(*kept);
      find_nodes(roots, found.inventory, log);
      found.inventory.sockets = find_sockets(roots.driver);
      return found;
    }
    found.stale = kept.error().message();
  }
  TRY_ASSIGN(found.inventory, gather(roots, options, log));
  return found;
}

Result<void> keep_node_inventory(const HostRoots& roots, const std::string& file, const GatherOptions& options,
                                 LogSink& log) {
  // The key of before: what changes meanwhile makes the file stale, not wrong.
  const std::string key = inventory_key(roots);
  auto inventory = gather(roots, options, log);
  if (!inventory) {
    if (inventory.error().kind() == ErrorKind::not_found) (void)unlink(file.c_str());
    return fail(std::move(inventory.error()));
  }
  const size_t slash = file.rfind('/');
  if (slash != std::string::npos && slash > 0) TRY(make_directories(file.substr(0, slash), 0755));
  InventoryDocument kept;
  kept.key = key_lines(key);
  kept.inventory = std::move(*inventory);
  return write_file_atomically(file, serialize(kept), 0644);
}

}  // namespace situla::nvidia
