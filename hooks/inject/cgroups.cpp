#include <vector>

#include "common/base/text.hpp"
#include "hooks/inject/hooks.hpp"

namespace situla {
namespace {

constexpr size_t kMaxMountTable = size_t{16} << 20U;

/// Where a hierarchy is mounted, and which of its groups is seen there.
struct Hierarchy {
  std::string_view root, mount;
};

/// The first mount of the hierarchy with these controllers ("" for version 2) in a mountinfo table, proc(5).
Hierarchy find_hierarchy(std::string_view table, std::string_view controllers) {
  for (const std::string_view line : split(table, '\n')) {
    const size_t separator = line.find(" - ");
    if (separator == std::string_view::npos) continue;
    const auto left = split_words(line.substr(0, separator));
    const auto right = split_words(line.substr(separator + 3));
    if (left.size() < 5 || right.size() < 3) continue;
    const bool matches = controllers.empty()
                             ? right[0] == "cgroup2"
                             : right[0] == "cgroup" && right[2].find(controllers) != std::string_view::npos;
    if (matches) return {left[3], left[4]};
  }
  return {};
}

constexpr const char* kOrigin = "built-in hook cgroups";
constexpr MountFlags kFlags{.read_only = true, .no_suid = true, .no_dev = true, .no_exec = true};

MountStep bind_own_group(const Hierarchy& hierarchy, std::string_view group) {
  // The path is the group's in the hierarchy, of which a part may be the mount's root already.
  if (hierarchy.root != "/" && group.starts_with(hierarchy.root)) group.remove_prefix(hierarchy.root.size());
  return {.source = std::string(hierarchy.mount) + "/" + std::string(group),
          .target = std::string(hierarchy.mount),
          .recursive = true,
          .create = CreateTarget::directory,
          .on_failure = OnFailure::ignore,
          .flags = kFlags,
          .origin = kOrigin};
}

}  // namespace

Result<ContainerEdits> cgroups_hook(const HookContext& context) {
  ContainerEdits edits;
  const auto groups = context.host_root.read_file("/proc/self/cgroup");
  const auto table = context.host_root.read_file("/proc/self/mountinfo", kMaxMountTable);
  if (!groups || !table) return edits;
  for (const std::string_view line : split_nonempty(*groups, '\n')) {
    const auto fields = split(line, ':');
    if (fields.size() < 3) continue;
    const Hierarchy hierarchy = find_hierarchy(*table, fields[1]);
    const std::string_view group = line.substr(fields[0].size() + fields[1].size() + 2);
    // The root group is there already.
    if (hierarchy.mount.empty() || group == hierarchy.root || group.starts_with("/..")) continue;
    edits.mounts_after_hooks.push_back(bind_own_group(hierarchy, group));
  }
  edits.mounts_after_hooks.push_back({.kind = StepKind::remount,
                                      .target = "/sys/fs/cgroup",
                                      .recursive = true,
                                      .on_failure = OnFailure::ignore,
                                      .flags = kFlags,
                                      .propagation = Propagation::slave,
                                      .propagation_recursive = true,
                                      .origin = kOrigin});
  return edits;
}

}  // namespace situla
