#include "hooks/run/enter.hpp"

#include <fcntl.h>
#include <unistd.h>

#include "common/sys/identity.hpp"
#include "common/sys/mount_api.hpp"
#include "common/sys/namespaces.hpp"
#include "hooks/inject/hook.hpp"
#include "hooks/mount/apply.hpp"
#include "hooks/mount/fstab.hpp"
#include "hooks/run/container_environment.hpp"
#include "hooks/run/site_files.hpp"

namespace situla {
namespace {

constexpr int kBeforeHooks = -1;
constexpr int kAfterHooks = 0;

bool chosen(Tristate wanted, const EnrootConfig& config, std::string_view name) {
  return wanted == Tristate::unset ? config.flag(name) : wanted == Tristate::yes;
}

/// Every fstab line of the image, the site and the user, in this order.
Result<std::vector<FstabEntry>> fstab_entries(const RootDir& root, const EnrootConfig& config,
                                              const Environment& expansion) {
  std::vector<FstabEntry> entries;
  const auto add = [&](std::string_view text, const std::string& where) -> Result<void> {
    TRY_ASSIGN(const std::vector<FstabEntry> parsed, parse_fstab(text, expansion, where));
    entries.insert(entries.end(), parsed.begin(), parsed.end());
    return {};
  };
  if (const auto image = root.read_file("/etc/fstab")) TRY(add(*image, "image /etc/fstab"));
  TRY_ASSIGN(const std::vector<SiteFile> files, mount_files(config));
  for (const SiteFile& file : files) TRY(add(file.text, file.path));
  return entries;
}

std::vector<MountStep> steps_of_pass(const std::vector<FstabEntry>& entries, int pass) {
  std::vector<MountStep> steps;
  for (const FstabEntry& entry : entries)
    if (entry.pass == pass) steps.push_back(entry.step);
  return steps;
}

/// What comes after the system's mounts: the hooks', the remaining lines, the options (COMPAT.md 6.3 and 6.4).
Result<MountPlan> later_mounts(const std::vector<FstabEntry>& entries, const Proposal& hooks,
                               const PrepareRequest& request, const ContainerExtras& extras) {
  MountPlan plan;
  TRY(plan.add(hooks.mounts));
  TRY(plan.add(steps_of_pass(entries, kAfterHooks)));
  for (const MountOption& option : request.spec.mounts) {
    TRY_ASSIGN(MountStep step, step_from_option(option, request.host, "--container-mounts"));
    TRY(plan.add(std::move(step)));
  }
  for (const std::string& line : extras.mounts) {
    TRY_ASSIGN(FstabEntry entry, parse_fstab_line(line, "--mount"));
    TRY(plan.add(std::move(entry.step)));
  }
  return plan;
}

/// Relative mount sources are meant from where the user is.
std::string working_directory(const Environment& host) {
  const std::string directory = host.get_or("PWD", "");
  return directory.starts_with('/') ? directory : "/";
}

/// Mounts, hooks, and the environment before the login shell, in enroot's order: what hooks write may lie on the
/// system's mounts (a home directory in /tmp).
Result<Environment> furnish(const RootDir& root, const std::string& path, const PrepareRequest& request,
                            const ContainerExtras& extras, const EnrootConfig& config, LogSink& log) {
  const Environment expansion = expansion_environment(request.host, config, path);
  TRY_ASSIGN(Environment environment, assemble_environment(root, config, expansion));
  add_words(environment, extras.environment, request.host);
  environment.merge(kept_variables(request.host, request.spec.keep_env));
  TRY_ASSIGN(const std::vector<FstabEntry> entries, fstab_entries(root, config, expansion));
  const auto mount = [&](MountPlan plan) -> Result<void> {
    TRY_ASSIGN(const ValidatedMountPlan validated, std::move(plan).validate(working_directory(request.host)));
    return apply(validated, ApplyTarget{root, path}, log);
  };

  MountPlan system;
  TRY(system.add(steps_of_pass(entries, kBeforeHooks)));
  TRY(mount(std::move(system)));

  const UserEntry user = look_up_user(request.host_uid, request.host_gid, request.host);
  TRY_ASSIGN(const RootDir host_root, RootDir::open("/"));
  const InjectContext context{root, host_root,          request.host,
                              user, request.remap_root, chosen(request.spec.mount_home, config, "ENROOT_MOUNT_HOME"),
                              log};
  TRY_ASSIGN(const Proposal hooks, run_built_in_hooks(context));
  environment.merge(hooks.environment);
  TRY(apply_file_changes(hooks.files, root, log));

  TRY_ASSIGN(MountPlan rest, later_mounts(entries, hooks, request, extras));
  TRY(mount(std::move(rest)));
  return environment;
}

}  // namespace

bool wants_remap_root(const ContainerSpec& spec, const EnrootConfig& config) {
  return chosen(spec.remap_root, config, "ENROOT_REMAP_ROOT");
}

bool wants_writable(const ContainerSpec& spec, const EnrootConfig& config) {
  return chosen(spec.writable, config, "ENROOT_ROOTFS_WRITABLE");
}

Result<EnteredContainer> enter_container(PrepareRequest request, const ContainerExtras& extras,
                                         const EnrootConfig& config, LogSink& log) {
  const bool writable = wants_writable(request.spec, config);
  EnteredContainer entered;
  TRY_ASSIGN(entered.stage, open_file(request.stage, O_RDONLY | O_DIRECTORY));
  RootRequest root_request;
  root_request.stage = request.stage;
  root_request.writable = writable;
  root_request.keep_on_disk = !extras.changes_in_memory;
  root_request.scratch_parent = extras.scratch_parent.empty() ? config.data_path() : extras.scratch_parent;
  root_request.scratch_name = request.scratch_name;
  root_request.uid = request.remap_root ? 0 : request.host_uid;
  root_request.gid = request.remap_root ? 0 : request.host_gid;
  TRY_ASSIGN(ContainerRoot built, build_root(request.root, root_request, log));
  TRY_ASSIGN(const RootDir root, RootDir::open(built.path));
  TRY_ASSIGN(entered.environment, furnish(root, built.path, request, extras, config, log));
  if (!writable) TRY_CONTEXT("make the root read-only", add_mount_flags(root.fd(), {.read_only = true}, false));
  TRY_CONTEXT("enter the container", pivot_into(root.fd()));
  // Kernels without cgroup namespaces do without (EINVAL), as enroot does.
  if (auto unshared = unshare_namespaces(kCgroupNs); !unshared && unshared.error().errnum() != EINVAL)
    return fail(std::move(unshared).error());
  entered.server = std::move(built.server);
  entered.scratch = std::move(built.scratch);
  return entered;
}

Result<void> restrict_privileges(bool remap_root) {
  TRY(set_no_new_privileges());
  if (!remap_root) TRY(drop_bounding_set());
  return {};
}

Result<UniqueFd> temporary_file(const UniqueFd& stage, std::string_view content) {
  TRY_ASSIGN(UniqueFd file, open_file_at(stage.get(), ".", O_TMPFILE | O_RDWR | O_APPEND, 0600));
  TRY(write_all(file.get(), content));
  if (lseek(file.get(), 0, SEEK_SET) != 0) return fail_errno(errno, "rewind a temporary file");
  return file;
}

}  // namespace situla
