#include "hooks/run/enter.hpp"

#include <iterator>

#include <fcntl.h>
#include <unistd.h>

#include "common/sys/identity.hpp"
#include "common/sys/mount_api.hpp"
#include "common/sys/namespaces.hpp"
#include "hooks/mount/apply.hpp"
#include "hooks/mount/fstab.hpp"
#include "hooks/run/config_script.hpp"
#include "hooks/run/container_environment.hpp"
#include "hooks/run/hook_runner.hpp"
#include "hooks/run/running.hpp"
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

/// What comes after the system's mounts: the hooks', the remaining lines, the configuration script's, the options
/// (COMPAT.md 6.3 and 6.4).
Result<std::vector<MountStep>> later_mounts(const std::vector<FstabEntry>& entries, std::vector<MountStep> mounts,
                                            std::string_view script_lines, const PrepareRequest& request,
                                            const ContainerExtras& extras) {
  const auto add = [&](std::vector<MountStep> more) {
    mounts.insert(mounts.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  };
  add(steps_of_pass(entries, kAfterHooks));
  if (!script_lines.empty()) {
    TRY_ASSIGN(std::vector<MountStep> asked,
               parse_literal_fstab(script_lines, kAfterHooks, *extras.configuration + " mounts()"));
    add(std::move(asked));
  }
  for (const MountOption& option : request.spec.mounts) {
    TRY_ASSIGN(MountStep step, step_from_option(option, request.host, "--container-mounts"));
    mounts.push_back(std::move(step));
  }
  for (const std::string& line : extras.mounts) {
    TRY_ASSIGN(FstabEntry entry, parse_fstab_line(line, "--mount"));
    mounts.push_back(std::move(entry.step));
  }
  return mounts;
}

/// Relative mount sources are meant from where the user is.
std::string working_directory(const Environment& host) {
  const std::string directory = host.get_or("PWD", "");
  return directory.starts_with('/') ? directory : "/";
}

/// The interfaces in /sys are those of the network namespace that it was mounted in. A host that hides parts of its own
/// /sys allows no new one in a user namespace.
void mount_own_sysfs(const ApplyTarget& target, LogSink& log) {
  const auto mount = [&]() -> Result<void> {
    TRY_ASSIGN(const FstabEntry sysfs,
               parse_fstab_line("sysfs /sys sysfs x-create=dir,ro,nosuid,nodev,noexec,rslave", "network namespace"));
    TRY(mount_steps({sysfs.step}, "/", target, log));
    return {};
  };
  if (const auto mounted = mount(); !mounted)
    log.warning("/sys shows the host's network: " + mounted.error().message());
}

/// What is there before the first hook: /proc, /sys, /dev and what else has pass -1.
Result<std::vector<FstabEntry>> mount_before_hooks(const ApplyTarget& target, const PrepareRequest& request,
                                                   const EnrootConfig& config, const Environment& expansion,
                                                   LogSink& log) {
  TRY_ASSIGN(std::vector<FstabEntry> entries, fstab_entries(target.root, config, expansion));
  TRY(mount_steps(steps_of_pass(entries, kBeforeHooks), working_directory(request.host), target, log));
  if (config.flag("ENROOT_UNSHARE_NET")) mount_own_sysfs(target, log);
  return entries;
}

/// What the options decide, in the words of the configuration: for hooks and scripts.
EnrootConfig with_options(const EnrootConfig& config, const PrepareRequest& request, const Isolation& isolation) {
  EnrootConfig result = config;
  const auto set = [&](std::string_view name, bool value) { result.set(name, value ? "yes" : "no"); };
  set("ENROOT_REMAP_ROOT", request.remap_root);
  set("ENROOT_ROOTFS_WRITABLE", wants_writable(request.spec, config));
  set("ENROOT_MOUNT_HOME", chosen(request.spec.mount_home, config, "ENROOT_MOUNT_HOME"));
  // Where the files of this container's preparation are; scripts put theirs there, too.
  result.set("ENROOT_RUNTIME_PATH", request.stage);
  set("ENROOT_UNSHARE_PID", isolation.pid);
  set("ENROOT_UNSHARE_NET", isolation.net);
  set("ENROOT_UNSHARE_IPC", isolation.ipc);
  set("ENROOT_UNSHARE_UTS", isolation.uts);
  return result;
}

/// Mounts, hooks, and the environment before the login shell, in enroot's order: what hooks write may lie on the
/// system's mounts (a home directory in /tmp).
Result<void> furnish(const RootDir& root, const std::string& path, const PrepareRequest& request,
                     const ContainerExtras& extras, const EnrootConfig& config, EnteredContainer& entered,
                     LogSink& log) {
  const Environment expansion = expansion_environment(request.host, config, path);
  Environment& environment = entered.environment;
  TRY_ASSIGN(environment, assemble_environment(root, config, expansion));
  ScriptHost scripts({request.stage, path, extras.script_output}, request.host, config, log);
  std::optional<ConfigScript> configuration;
  if (extras.configuration) {
    TRY_ASSIGN(configuration, ConfigScript::start(*extras.configuration, extras.command, scripts, environment));
    TRY(configuration->environ(environment));
  }
  add_words(environment, extras.environment, request.host);
  environment.merge(kept_variables(request.host, request.spec.keep_env));

  const ApplyTarget target{root, path};
  TRY_ASSIGN(const std::vector<FstabEntry> entries, mount_before_hooks(target, request, config, expansion, log));
  const HookScene scene{root,
                        path,
                        request.host,
                        config,
                        request.host_uid,
                        request.host_gid,
                        request.devices,
                        request.spec.devices,
                        request.for_step ? HookUse::step : HookUse::command,
                        scripts,
                        configuration ? &*configuration : nullptr};
  TRY_ASSIGN(std::vector<MountStep> mounts, run_hooks(scene, environment, log));
  std::string lines;
  if (configuration) {
    TRY_ASSIGN(lines, configuration->mounts());
    TRY_ASSIGN(entered.rc, configuration->rc());
  }
  TRY_ASSIGN(mounts, later_mounts(entries, std::move(mounts), lines, request, extras));
  return mount_steps(mounts, working_directory(request.host), target, log);
}

Result<ContainerRoot> build_root_of(const PrepareRequest& request, const ContainerExtras& extras,
                                    const EnrootConfig& config, LogSink& log) {
  RootRequest root;
  root.stage = request.stage;
  root.writable = wants_writable(request.spec, config);
  root.keep_on_disk = !extras.changes_in_memory;
  const bool in_data = extras.scratch_parent.empty();
  root.scratch_kind = in_data ? ScratchPlaceKind::data : ScratchPlaceKind::temporary;
  root.scratch_parent = in_data ? config.data_path() : extras.scratch_parent;
  if (request.for_step) {
    root.mark = step_mark(request.scratch_name);
    root.image_name = request.spec.image;
    root.container_name = request.spec.name;
  }
  root.scratch_name = request.scratch_name;
  root.scratch_notice = request.scratch_notice;
  root.uid = request.remap_root ? 0 : request.host_uid;
  root.gid = request.remap_root ? 0 : request.host_gid;
  return build_root(request.root, root, log);
}

}  // namespace

DeviceSettings read_device_settings(LogSink& log) {
  const Result<SiteConfig> site = SiteConfig::load(SITULA_SYSCONF_DIR "/situla.toml");
  if (!site) log.warning("ignoring " + site.error().message());
  return site ? site->device_settings : DeviceSettings();
}

bool wants_remap_root(const ContainerSpec& spec, const EnrootConfig& config) {
  return chosen(spec.remap_root, config, "ENROOT_REMAP_ROOT");
}

bool wants_writable(const ContainerSpec& spec, const EnrootConfig& config) {
  return chosen(spec.writable, config, "ENROOT_ROOTFS_WRITABLE");
}

Result<ContainerEdits> plan_in_container(PrepareRequest request, const ContainerExtras& extras,
                                         const EnrootConfig& config, LogSink& log) {
  TRY_ASSIGN(const ContainerRoot built, build_root_of(request, extras, config, log));
  TRY_ASSIGN(const RootDir root, RootDir::open(built.path));
  const EnrootConfig own = with_options(config, request, extras.isolation);
  const Environment expansion = expansion_environment(request.host, own, built.path);
  TRY_ASSIGN(Environment environment, assemble_environment(root, own, expansion));
  add_words(environment, extras.environment, request.host);
  TRY(mount_before_hooks({root, built.path}, request, own, expansion, log));
  ScriptHost scripts({request.stage, built.path, extras.script_output}, request.host, own, log);  // runs none
  return planned_edits({root, built.path, request.host, own, request.host_uid, request.host_gid, request.devices,
                        request.spec.devices, HookUse::command, scripts},
                       std::move(environment), log);
}

Result<EnteredContainer> enter_container(PrepareRequest request, const ContainerExtras& extras,
                                         const EnrootConfig& config, LogSink& log) {
  const bool writable = wants_writable(request.spec, config);
  EnteredContainer entered;
  TRY_ASSIGN(entered.stage, open_file(request.stage, O_RDONLY | O_DIRECTORY));
  TRY_ASSIGN(ContainerRoot built, build_root_of(request, extras, config, log));
  TRY_ASSIGN(const RootDir root, RootDir::open(built.path));
  TRY(furnish(root, built.path, request, extras, with_options(config, request, extras.isolation), entered, log));
  if (!writable) TRY_CONTEXT("make the root read-only", add_mount_flags(root.fd(), {.read_only = true}, false));
  TRY_CONTEXT("enter the container", pivot_into(root.fd()));
  // Kernels without cgroup namespaces do without (EINVAL), as enroot does.
  if (auto unshared = unshare_namespaces(kCgroupNs); !unshared && unshared.error().errnum() != EINVAL)
    return fail(std::move(unshared).error());
  entered.root_kind = std::move(built.kind);
  entered.changes = std::move(built.changes);
  entered.server = std::move(built.server);
  entered.scratch = std::move(built.scratch);
  return entered;
}

Result<void> restrict_privileges(bool is_root) {
  TRY(set_no_new_privileges());
  if (!is_root) TRY(drop_bounding_set());
  return {};
}

Result<UniqueFd> temporary_file(const UniqueFd& stage, std::string_view content) {
  TRY_ASSIGN(UniqueFd file, open_file_at(stage.get(), ".", O_TMPFILE | O_RDWR | O_APPEND, 0600));
  TRY(write_all(file.get(), content));
  if (lseek(file.get(), 0, SEEK_SET) != 0) return fail_errno(errno, "rewind a temporary file");
  return file;
}

}  // namespace situla
