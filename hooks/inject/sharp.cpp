#include "common/base/text.hpp"
#include "hooks/inject/hooks.hpp"

namespace situla {
namespace {

constexpr size_t kMaxSocketTable = size_t{64} << 20U;

/// The abstract socket of the SHARP daemon, without the "@"; empty where none runs (SHARP 2.7 and later have none).
std::string daemon_socket(const RootDir& host_root) {
  const auto table = host_root.read_file("/proc/self/net/unix", kMaxSocketTable);
  if (!table) return "";
  for (const std::string_view line : split(*table, '\n')) {
    const auto words = split_words(line);
    if (words.size() >= 8 && words[7].starts_with("@sharpd") && words[7] != "@sharpd_unix_sock")
      return std::string(words[7].substr(1));
  }
  return "";
}

}  // namespace

Result<ContainerEdits> sharp_hook(const HookContext& context) {
  ContainerEdits edits;
  const std::string devices = context.host.has("MELLANOX_VISIBLE_DEVICES")
                                  ? context.host.get_or("MELLANOX_VISIBLE_DEVICES", "")
                                  : context.container.get_or("MELLANOX_VISIBLE_DEVICES", "");
  if (devices.empty() || devices == "void" || devices == "none") return edits;
  const std::string socket = daemon_socket(context.host_root);
  if (socket.empty() && context.host.get("SLURM_NETWORK") != "sharp") return edits;
  const auto set = [&](std::string_view name, const std::string& value) {
    if (!value.empty() && !context.container.has(name)) edits.environment.set(name, value);
  };
  if (!socket.empty()) edits.environment.set("SHARP_COLL_SHARPD_SOCKET_NAME", socket);
  set("SHARP_COLL_LOCK_ON_COMM_INIT", "1");
  set("SHARP_COLL_NUM_COLL_GROUP_RESOURCE_ALLOC_THRESHOLD", "0");
  set("NCCL_COLLNET_ENABLE", "1");
  const std::string nodes = context.host.get_or("SLURM_STEP_NUM_NODES", "");
  set("NCCL_SHARP_GROUP_SIZE_THRESH", nodes.empty() ? context.host.get_or("OMPI_MCA_orte_num_nodes", "") : nodes);
  return edits;
}

}  // namespace situla
