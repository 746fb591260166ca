#include "hooks/run/enter.hpp"

#include <algorithm>
#include <iterator>

#include <fcntl.h>
#include <unistd.h>

#include "common/protocol/slurm_inside.hpp"
#include "common/sys/file.hpp"
#include "common/sys/mount/mount_api.hpp"
#include "common/sys/mount/namespaces.hpp"
#include "hooks/containers/user_range.hpp"
#include "hooks/inject/hook.hpp"
#include "hooks/mount/fstab.hpp"
#include "hooks/run/container_environment.hpp"
#include "hooks/run/mounted_images.hpp"
#include "hooks/scripts/config_script.hpp"
#include "hooks/scripts/definitions.hpp"
#include "hooks/scripts/hook_sequence.hpp"
#include "hooks/scripts/site_files.hpp"

namespace situla {

namespace {

constexpr int kBeforeHooks = -1;
constexpr int kAfterHooks = 0;

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

/// The interfaces in /sys are those of the network namespace that it was mounted in. A host that hides parts of its own
/// /sys allows no new one in a user namespace; then the container sees the host's.
MountStep own_sysfs() {
  return {.kind = StepKind::filesystem,
          .source = "sysfs",
          .target = "/sys",
          .type = "sysfs",
          .create = CreateTarget::directory,
          .on_failure = OnFailure::warn,
          .flags = {.read_only = true, .no_suid = true, .no_dev = true, .no_exec = true},
          .propagation = Propagation::slave,
          .propagation_recursive = true,
          .origin = "own network namespace"};
}

/// Of a step: links to the static program that talks to the step's proxy. A container in which they cannot be (the
/// user's own /run) is run without them.
MountStep slurm_commands(const std::string& directory) {
  return {.source = directory,
          .target = kSlurmInsideDirectory,
          .create = CreateTarget::directory,
          .on_failure = OnFailure::ignore,
          .flags = {.read_only = true, .no_suid = true, .no_dev = true},
          .propagation = Propagation::private_mount,
          .origin = "Slurm inside the container"};
}

/// Mounts of fstab and options: the user's own word, also where a mount point is made in a directory of the host.
ContainerEdits as_edits(std::vector<MountStep> steps) {
  ContainerEdits edits;
  edits.mounts = std::move(steps);
  edits.in_host_directories = true;
  return edits;
}

/// A container on its way, with what every part of the sequence looks at.
class Preparation {
 public:
  static Result<Preparation> begin(ContainerRequest& request, LogSink& log) {
    TRY_ASSIGN(UniqueFd stage, open_file(request.stage(), O_RDONLY | O_DIRECTORY));
    TRY_ASSIGN(ContainerRoot built, build_root(request, log));
    TRY(keep_range(request, built.path));
    request.root.image.reset();
    TRY_ASSIGN(RootDir root, RootDir::open(built.path));
    TRY_ASSIGN(RootDir host_root, RootDir::open("/"));
    Preparation preparation(request, std::move(root), std::move(host_root), log);
    preparation.host_ = expansion_environment(request.host, request.config, built.path);
    TRY(preparation.assemble());
    preparation.container_.stage = std::move(stage);
    preparation.container_.root = std::move(built);
    return preparation;
  }

  Result<Container> enter() && {
    Changes changes(target(), request_.host.has("SITULA_DEBUG"), false, log_);
    TRY(change_root(changes, request_.for_step() ? HookUse::step : HookUse::command));
    // Environment, mounts and hooks do without files that are not there. This one may be.
    TRY(root_.all_answered());
    TRY(host_root_.all_answered());
    TRY(go_inside());
    return std::move(container_);
  }

  Result<std::vector<ContainerEdits>> plan(HookUse use) && {
    Changes changes(target(), false, true, log_);
    TRY(change_root(changes, use));
    std::vector<ContainerEdits> plan = changes.take_plan();
    if (use == HookUse::devices) {  // only what the hooks gave
      plan.erase(plan.begin());
      plan.pop_back();
    }
    return plan;
  }

 private:
  Preparation(const ContainerRequest& request, RootDir root, RootDir host_root, LogSink& log)
      : request_(request), log_(log), root_(std::move(root)), host_root_(std::move(host_root)) {}

  [[nodiscard]] ApplyTarget target() const { return {root_, container_.root.path, request_.host.get_or("PWD", "/")}; }

  /// The container's variables, of the image and of files.
  Result<void> assemble() {
    TRY_ASSIGN(container_.environment, assemble_environment(root_, request_.config, host_));
    return add_file_variables(container_.environment, request_.spec.variables, host_);
  }

  /// In enroot's order: what hooks write may lie on the system's mounts (a home directory in /tmp).
  Result<void> change_root(Changes& changes, HookUse use) {
    ScriptHost scripts(request_.stage(), request_.for_step() ? ScriptOutput::log : ScriptOutput::user, host_, log_);
    std::optional<ConfigScript> script;
    const std::string& configuration = request_.start.configuration;
    if (!configuration.empty()) changes.note_script(configuration);
    if (!configuration.empty() && !changes.dry_run()) {
      TRY_ASSIGN(script, ConfigScript::start(configuration, request_.command, scripts, container_.environment));
      TRY(script->sourced(host_));
      TRY(assemble());
      TRY(script->environ(container_.environment));
    }
    add_words(container_.environment, request_.start.environment, script ? host_ : request_.host);
    container_.environment.merge(kept_variables(request_.host, request_.spec.keep_env));
    TRY(mount_before_hooks(changes));
    const auto begun = std::chrono::steady_clock::now();
    TRY(run_all_hooks(changes, use, scripts, script));
    container_.hooks_time =
        std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begun);
    TRY(add_later_mounts(script));
    place_images(mounts_, request_.mounted_images);
    TRY(changes.make(as_edits(std::move(mounts_))));
    if (script) TRY(script->finish());
    return add_slurm(changes);
  }

  /// What is there before the first hook: /proc, /sys, /dev and what else has pass -1.
  Result<void> mount_before_hooks(Changes& changes) {
    TRY_ASSIGN(entries_, fstab_entries(root_, request_.config, host_));
    std::vector<MountStep> steps = steps_of_pass(kBeforeHooks);
    place_images(steps, request_.mounted_images);
    if (request_.isolation.net) steps.push_back(own_sysfs());
    return changes.make_always(as_edits(std::move(steps)));
  }

  [[nodiscard]] std::vector<MountStep> steps_of_pass(int pass) const {
    std::vector<MountStep> steps;
    for (const FstabEntry& entry : entries_)
      if (entry.pass == pass) steps.push_back(entry.step);
    return steps;
  }

  [[nodiscard]] HookContext hook_context() const {
    return {.root = root_,
            .host_root = host_root_,
            .host = host_,
            .container = container_.environment,
            .user = user_,
            .remap_root = request_.remap_root,
            .mount_home = request_.mount_home,
            .restrict_devices = request_.config.flag("ENROOT_RESTRICT_DEV"),
            .own_ipc = request_.isolation.ipc,
            .log = log_,
            .device_settings = request_.devices,
            .wanted_devices = request_.spec.devices,
            .root_path = container_.root.path,
            .real_root = request_.real_root(),
            .has_range = request_.range.wanted};
  }

  Result<void> run_all_hooks(Changes& changes, HookUse use, ScriptHost& scripts, std::optional<ConfigScript>& script) {
    TRY_ASSIGN(user_, look_up_user(request_.uid, request_.gid, request_.host));
    TRY_ASSIGN(const std::vector<HookStep> sequence, hook_sequence(request_.config, use));
    const auto is_shadow = [](const HookStep& step) { return step.built_in == BuiltInHook::shadow; };
    if (std::any_of(sequence.begin(), sequence.end(), is_shadow)) user_.groups = look_up_groups();
    auto ran = run_hooks(sequence, hook_context(), scripts, container_.environment, changes);
    if (!ran) return fail(std::move(ran).error().with_code(ErrorCode::hook));
    mounts_ = std::move(*ran);
    if (changes.dry_run()) return {};
    if (script) TRY(script->hooks(container_.environment));
    TRY_ASSIGN(const std::string lines, scripts.mounts());
    return add_lines(lines, "ENROOT_MOUNTS");
  }

  /// After the hooks': the remaining lines, the configuration script's, the options (COMPAT.md 6.3 and 6.4).
  Result<void> add_later_mounts(std::optional<ConfigScript>& script) {
    add(steps_of_pass(kAfterHooks));
    if (script) {
      TRY_ASSIGN(const std::string lines, script->mounts());
      TRY_ASSIGN(container_.rc, script->rc());
      TRY(add_lines(lines, request_.start.configuration + " mounts()"));
    }
    for (const MountOption& option : request_.spec.mounts) {
      TRY_ASSIGN(MountStep step, step_from_option(option, request_.host));
      mounts_.push_back(std::move(step));
    }
    for (const std::string& argument : request_.start.mounts) {
      TRY_ASSIGN(MountStep step, step_from_argument(argument, "--mount", request_.host));
      mounts_.push_back(std::move(step));
    }
    return {};
  }

  /// Nobody's word but the site's: no mount point is made for it in a directory of the host. From a network namespace
  /// of the container's the step is not to be reached.
  Result<void> add_slurm(Changes& changes) const {
    const bool wanted = request_.for_step() && request_.slurm_inside && !request_.isolation.net;
    const auto directory = wanted ? find_installed(kSlurmInsideName) : fail(ErrorKind::not_found, "");
    if (!directory) return {};
    ContainerEdits edits;
    edits.mounts.push_back(slurm_commands(*directory));
    return changes.make(std::move(edits));
  }

  Result<void> add_lines(std::string_view lines, const std::string& origin) {
    TRY_ASSIGN(std::vector<MountStep> steps, parse_literal_fstab(lines, kAfterHooks, origin));
    add(std::move(steps));
    return {};
  }

  void add(std::vector<MountStep> steps) {
    mounts_.insert(mounts_.end(), std::make_move_iterator(steps.begin()), std::make_move_iterator(steps.end()));
  }

  Result<void> go_inside() {
    if (!request_.writable)
      TRY_CONTEXT("make the root read-only", add_mount_flags(root_.fd(), {.read_only = true}, false));
    TRY_CONTEXT("enter the container", pivot_into(root_.fd()));
    // Kernels without cgroup namespaces do without (EINVAL), as enroot does.
    if (auto unshared = unshare_namespaces(kCgroupNs); !unshared && unshared.error().errnum() != EINVAL)
      return unshared;
    container_.root.lock.reset();
    return {};
  }

  const ContainerRequest& request_;
  LogSink& log_;
  RootDir root_, host_root_;
  Container container_;
  Environment host_;  ///< what hooks, scripts and ${NAME} in files see
  UserEntry user_;
  std::vector<FstabEntry> entries_;
  std::vector<MountStep> mounts_;
};

}  // namespace

Result<UniqueFd> Container::temporary_file(std::string_view content) const {
  TRY_ASSIGN(UniqueFd file, open_file_at(stage.get(), ".", O_TMPFILE | O_RDWR | O_APPEND, 0600));
  TRY(write_all(file.get(), content));
  if (lseek(file.get(), 0, SEEK_SET) != 0) return fail_errno(errno, "rewind a temporary file");
  return file;
}

Result<std::vector<ContainerEdits>> plan_in_container(ContainerRequest& request, HookUse use, LogSink& log) {
  TRY_ASSIGN(Preparation preparation, Preparation::begin(request, log));
  return std::move(preparation).plan(use);
}

Result<Container> enter_container(ContainerRequest& request, LogSink& log) {
  TRY_ASSIGN(Preparation preparation, Preparation::begin(request, log));
  return std::move(preparation).enter();
}

}  // namespace situla
