#include <algorithm>

#include "common/base/text.hpp"
#include "common/sys/mount_table.hpp"
#include "hooks/inject/hooks.hpp"

namespace situla {
namespace {

constexpr size_t kMaxMountTable = size_t{16} << 20U;

/// The first mount of the hierarchy with these controllers ("" for version 2).
const MountRecord* find_hierarchy(const std::vector<MountRecord>& table, std::string_view controllers) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const MountRecord& mount) {
    return controllers.empty() ? mount.type == "cgroup2"
                               : mount.type == "cgroup" && mount.options.find(controllers) != std::string::npos;
  });
  return found == table.end() ? nullptr : &*found;
}

/// The group that a step shows of a hierarchy: the one of all its tasks. Each task may have one of its own beneath it
/// (task_0, task_special), and so may who prepares the container for them.
std::string_view group_of_tasks(std::string_view group) {
  const size_t slash = group.rfind('/');
  if (slash == std::string_view::npos || group.find("/step_") >= slash) return group;
  const std::string_view name = group.substr(slash + 1);
  return name == "situla" || name.starts_with("task_") ? group.substr(0, slash) : group;
}

constexpr const char* kCgroups = "/sys/fs/cgroup";
constexpr const char* kCgroupsOrigin = "built-in hook cgroups";
constexpr MountFlags kFlags{.read_only = true, .no_suid = true, .no_dev = true, .no_exec = true};

MountStep bind_own_group(const MountRecord& hierarchy, std::string_view group) {
  // The path is the group's in the hierarchy, of which a part may be the mount's root already.
  if (hierarchy.root != "/" && group.starts_with(hierarchy.root)) group.remove_prefix(hierarchy.root.size());
  return {.source = hierarchy.path + "/" + std::string(group),
          .target = hierarchy.path,
          .recursive = true,
          .create = CreateTarget::directory,
          .on_failure = OnFailure::ignore,
          .flags = kFlags,
          .origin = kCgroupsOrigin};
}

/// A new /sys, as a network namespace has, comes without the directories of version 1's hierarchies, and none can be
/// made there.
void add_missing_place(const HookContext& context, std::vector<MountStep>& steps) {
  const bool missing = std::any_of(steps.begin(), steps.end(), [&](const MountStep& step) {
    return step.target.starts_with(std::string(kCgroups) + "/") && !context.root.exists(step.target);
  });
  if (!missing || !context.root.exists(kCgroups)) return;
  steps.insert(steps.begin(), {.kind = StepKind::filesystem,
                               .source = "tmpfs",
                               .target = kCgroups,
                               .type = "tmpfs",
                               .on_failure = OnFailure::ignore,
                               .flags = {.no_suid = true, .no_dev = true, .no_exec = true},
                               .parameters = {{"mode", "755"}},
                               .origin = kCgroupsOrigin});
}

}  // namespace

Result<ContainerEdits> cgroups_hook(const HookContext& context) {
  ContainerEdits edits;
  const auto groups = context.host_root.read_file("/proc/self/cgroup");
  const auto table = context.host_root.read_file("/proc/self/mountinfo", kMaxMountTable);
  if (!groups || !table) return edits;
  const std::vector<MountRecord> mounts = parse_mount_table(*table);
  const bool in_step = !context.host.get_or("SLURM_STEP_ID", "").empty();
  for (const std::string_view line : split_nonempty(*groups, '\n')) {
    const auto fields = split(line, ':');
    if (fields.size() < 3) continue;
    const MountRecord* hierarchy = find_hierarchy(mounts, fields[1]);
    std::string_view group = line.substr(fields[0].size() + fields[1].size() + 2);
    if (in_step) group = group_of_tasks(group);
    // The root group is there already.
    if (hierarchy == nullptr || group == hierarchy->root || group.starts_with("/..")) continue;
    edits.mounts_after_hooks.push_back(bind_own_group(*hierarchy, group));
  }
  add_missing_place(context, edits.mounts_after_hooks);
  edits.mounts_after_hooks.push_back({.kind = StepKind::remount,
                                      .target = kCgroups,
                                      .recursive = true,
                                      .on_failure = OnFailure::ignore,
                                      .flags = kFlags,
                                      .propagation = Propagation::slave,
                                      .propagation_recursive = true,
                                      .origin = kCgroupsOrigin});
  return edits;
}

}  // namespace situla
