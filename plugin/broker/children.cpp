#include "plugin/broker/children.hpp"

#include <algorithm>
#include <climits>
#include <csignal>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include "common/base/parts.hpp"
#include "common/protocol/contract.hpp"
#include "common/sys/file.hpp"
#include "common/sys/mount/mount_api.hpp"
#include "common/sys/mount/namespaces.hpp"
#include "common/sys/users.hpp"
#include "plugin/broker/events/heard.hpp"
#include "plugin/broker/node/id_ranges.hpp"
#include "plugin/broker/operation.hpp"

namespace situla {
namespace {

/// A mount namespace other than ours is entered only if our own user namespace owns it (job_container makes such): a
/// user can make mount namespaces only together with a user namespace of his own.
Result<void> enter_mount_namespace(const UniqueFd& theirs) {
  TRY_ASSIGN(const UniqueFd ours, open_namespace(0, "mnt"));
  TRY_ASSIGN(const NamespaceId their_id, namespace_id(theirs.get()));
  TRY_ASSIGN(const NamespaceId our_id, namespace_id(ours.get()));
  if (their_id == our_id) return {};
  TRY_ASSIGN(const UniqueFd owner, owning_user_namespace(theirs.get()));
  TRY_ASSIGN(const UniqueFd our_user, open_namespace(0, "user"));
  TRY_ASSIGN(const NamespaceId owner_id, namespace_id(owner.get()));
  TRY_ASSIGN(const NamespaceId our_user_id, namespace_id(our_user.get()));
  if (owner_id != our_user_id)
    return fail(ErrorKind::denied, "the asking task lives in a mount namespace that a user made");
  return join_namespace(theirs.get(), "mount");
}

Result<void> attach_to_stage(const UniqueFd& stage, const UniqueFd& image, const std::string& name) {
  TRY_ASSIGN(const UniqueFd place, open_file_at(stage.get(), name, O_PATH | O_DIRECTORY | O_NOFOLLOW));
  TRY_ASSIGN(UniqueFd mount, duplicate_fd(image.get(), "the image's mount"));
  return DetachedMount(std::move(mount)).attach(place.get());
}

/// RootOperation::stage_root. After it nothing here is root any more.
Result<void> stage_root(const Step& step, const TaskPlace& task, const StepImage& image) {
  TRY(enter_mount_namespace(task.mounts));
  TRY(unshare_namespaces(kMountNs));
  // Slave, not private: what automount or the administrator mounts on the node later still appears below bind mounts of
  // the container; nothing goes the other way.
  TRY(set_propagation("/", Propagation::slave, true));
  TRY_ASSIGN(const UniqueFd target, open_file(kStageMount, O_PATH | O_DIRECTORY | O_NOFOLLOW));
  const Identity& user = step.user;
  MountParameters parameters = {{"mode", "0700"}, {"uid", std::to_string(user.uid)}, {"gid", std::to_string(user.gid)}};
  if (const uint64_t size = step.config.root_tmpfs_bytes; size != 0)
    parameters.emplace_back("size", std::to_string(size));
  TRY(mount_new_at(target.get(), "tmpfs", "situla", parameters, {.no_suid = true, .no_dev = true}, kStageMount));
  TRY_ASSIGN(const UniqueFd stage, open_file(kStageMount, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  for (const char* name : {kStageImage, kStageDirectory}) {
    if (mkdirat(stage.get(), name, 0700) != 0 ||
        fchownat(stage.get(), name, user.uid, user.gid, AT_SYMLINK_NOFOLLOW) != 0)
      return fail_errno(errno, std::string("make directory ") + kStageMount + "/" + name);
  }
  return image.mount ? attach_to_stage(stage, image.mount, kStageImage) : Result<void>();
}

/// What may outlive the job, or comes after it: its cgroup is no place any more, for Slurm may be killing all that
/// lives there.
Launch cleaning(std::vector<std::string> arguments, const Launcher& launcher, const Identity& user) {
  Launch what{Program::builder, std::move(arguments), launcher.cgroups.cleanup(), user};
  what.own_pid_namespace = true;
  return what;
}

/// Removes, as the user, what a killed builder left of a named container that it was making; then what others of his
/// range own of it.
void sweep_unfinished(const Step& step, const TaskPlace& place) {
  Launch what = in_task_place(step, place, Program::builder, {"sweep"}, step.launcher.cgroups.cleanup());
  what.own_pid_namespace = true;
  const auto run = [&] {
    if (auto sweeper = step.launcher.launch_helper(what, builder_fd::kBroker))
      (void)sweeper->process.wait_for(kEndLimit);
  };
  run();
  what.id_maps = helper_maps(step.user, step.config.id_ranges);
  if (what.id_maps) run();
}

std::string how_it_ended(Child& process) {
  const auto status = process.wait_for(std::chrono::milliseconds(1000));
  return status && *status ? (*status)->text() : "closed its connection";
}

Error with_reason(std::string what, bool memory_ran_out) {
  if (!memory_ran_out)
    return Error(ErrorKind::failure, std::move(what))
        .with_code(ErrorCode::helper)
        .with_hint("the node's system log may say more");
  return Error(ErrorKind::failure, std::move(what) + ": the step's memory was used up")
      .with_code(ErrorCode::memory)
      .with_hint("ask for more memory (--mem); an import takes up to 256 MiB");
}

}  // namespace

Error ended_early(const char* who, Child& process) {
  return with_reason(std::string(who) + " " + how_it_ended(process), false);
}

Error ended_early(const char* who, Child& process, const NodeCgroups& step) {
  const std::string how = how_it_ended(process);
  return with_reason(std::string(who) + " " + how, step.memory_ran_out());
}

Error ended_early(const char* who, const ExitStatus& status, const NodeCgroups& step) {
  return with_reason(std::string(who) + " " + status.text(), step.memory_ran_out());
}

Launch in_task_place(const Step& step, const TaskPlace& place, Program program, std::vector<std::string> arguments,
                     CgroupPlace cgroup) {
  Launch what{program, std::move(arguments), std::move(cgroup), step.user};
  what.prepare = [&mounts = place.mounts] { return enter_mount_namespace(mounts); };
  what.directory = place.directory;
  what.fds = {{step.spec.get(), builder_fd::kSpec}, {step.environment.get(), builder_fd::kEnvironment}};
  return what;
}

Result<Helper> start_builder(const Step& step, const TaskPlace& place, const BuilderFiles& files,
                             const StepImage& image) {
  const NodeCgroups& cgroups = step.launcher.cgroups;
  TRY_ASSIGN(CgroupPlace cgroup, step.request.named ? cgroups.job() : cgroups.step());
  Launch what{Program::builder, {"container", image.mode, "pyxis_" + step.name()}, std::move(cgroup), step.user};
  what.fds = {{step.spec.get(), builder_fd::kSpec},
              {files.task, builder_fd::kTask},
              {files.for_tasks, builder_fd::kForTasks},
              {files.for_others, builder_fd::kForOthers}};
  if (image.file) what.fds.emplace_back(image.file.get(), builder_fd::kImage);
  if (files.saved >= 0) what.fds.emplace_back(files.saved, builder_fd::kSaved);
  what.prepare = [&]() -> Result<void> {
    TRY_CONTEXT(phrase(RootOperation::stage_root), stage_root(step, place, image));
    return {};
  };
  what.directory = place.directory;
  // It may hold a writable layer or a FUSE server for tasks that run on when the broker is lost: it cleans up by
  // itself.
  what.die_with_parent = false;
  return step.launcher.launch_helper(std::move(what), builder_fd::kBroker);
}

Result<void> attach_image(const Child& builder, const UniqueFd& mount, const std::string& name) {
  TRY_ASSIGN(const UniqueFd theirs, open_namespace(builder.pid(), "mnt"));
  TRY_ASSIGN(const UniqueFd ours, open_namespace(0, "mnt"));
  TRY_ASSIGN(const NamespaceId their_id, namespace_id(theirs.get()));
  TRY_ASSIGN(const NamespaceId our_id, namespace_id(ours.get()));
  if (their_id == our_id) return fail(ErrorKind::denied, "the builder has no mount namespace of its own");
  TRY_ASSIGN(Child child, fork_child());
  if (!child) {
    const auto attach = [&]() -> Result<void> {
      TRY(die_with_parent());
      TRY(enter_mount_namespace(theirs));
      TRY_ASSIGN(const UniqueFd stage, open_file(kStageMount, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
      return attach_to_stage(stage, mount, name);
    };
    const auto attached = attach();
    if (!attached)
      syslog(LOG_NOTICE, "%s: %s",
             name == kStageImage ? phrase(RootOperation::keep_container_image).data()
                                 : phrase(RootOperation::mount_other_image).data(),
             attached.error().message().c_str());
    _exit(attached ? 0 : 1);
  }
  // A file system of the user's may lie there, and not answer.
  TRY_ASSIGN(const auto status, child.wait_for(kEndLimit));
  return status && status->success() ? Result<void>()
                                     : fail(ErrorKind::failure, "the image's mount cannot be attached");
}

void refresh_inventory(const Step& step) {
  if (!built_in(Part::gpu)) return;
  const std::string& root = step.config.device_settings.device_root;
  if (access(((root == "/" ? "" : root) + "/proc/driver/nvidia/version").c_str(), F_OK) != 0) return;
  Launch what{Program::inventory, {"--if-stale"}, step.launcher.cgroups.broker(), Identity{}, Rights::root};
  what.die_with_parent = false;
  auto started = step.launcher.launch(what);
  if (started)
    (void)started->release();
  else
    syslog(LOG_WARNING, "%s: %s", phrase(RootOperation::keep_inventory).data(), started.error().message().c_str());
}

Result<Child> start_store_sweeper(const Launcher& launcher, const SiteConfig& config, const std::string& step) {
  TRY_ASSIGN(const Identity service, identity_of_user(config.service_user));
  return launcher.launch({Program::store,
                          {"--store", config.store_path, "--sweep", "--job", step},
                          launcher.cgroups.broker(),
                          service,
                          Rights::service});
}

Result<Cleaner> Cleaner::of_job(const Launcher& launcher, uid_t user, uint32_t job, int environment_fd) {
  TRY_ASSIGN(const Account account, account_of(user));
  Launch what = cleaning({"epilog", std::to_string(job), account.home}, launcher, account.identity);
  if (environment_fd >= 0) what.fds = {{environment_fd, builder_fd::kEnvironment}};
  return Cleaner(launcher, std::move(what));
}

Cleaner Cleaner::of_scratch(const Launcher& launcher, const Identity& user, const std::string& path) {
  return {launcher, cleaning({"clean", path}, launcher, user)};
}

Result<std::optional<ExitStatus>> Cleaner::run(const std::function<IdRangeRule()>& rule,
                                               std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  TRY_ASSIGN(Child first, launcher_.launch(what_));
  auto status = first.wait_for(limit);
  if (!status || !*status || (*status)->success()) return status;
  what_.id_maps = helper_maps(what_.who, rule());
  if (!what_.id_maps) return status;
  for (const auto& [fd, number] : what_.fds) (void)lseek(fd, 0, SEEK_SET);  // the first one has read it
  TRY_ASSIGN(Child second, launcher_.launch(what_));
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
  return second.wait_for(std::max(left, std::chrono::milliseconds(0)));
}

Result<void> Builder::take_scratch_path(const std::string& path) {
  // It is kept in /run, and so in memory.
  if (path.size() >= PATH_MAX) return fail(ErrorKind::corrupt, "the builder sent a path that is too long");
  scratch_path = path;
  return {};
}

/// What it had said of its scratch directory, if it was killed before that was read.
void Builder::drain_messages() {
  pollfd more{helper.socket.get(), POLLIN, 0};
  while (poll(&more, 1, 0) == 1 && (more.revents & POLLIN) != 0) {
    const auto message = hear(helper.socket.get());
    if (!message || !*message) return;
    if (const auto* place = std::get_if<ScratchPlace>(&**message)) (void)take_scratch_path(place->path);
  }
}

bool Builder::end(const Step& step, const TaskPlace& place, bool orderly, bool ready) {
  if (orderly && stays) (void)tell(helper.socket.get(), Finish{});
  // One that stays takes the end of the connection for the end of its work.
  if (stays)
    helper.socket.reset();
  else
    (void)helper.process.signal(SIGKILL);
  const auto status = helper.process.wait_for(kEndLimit);
  if (!stays) drain_messages();
  helper = Helper{};
  const bool ended_itself = status && *status && (*status)->signal == 0;
  if (step.request.named && !ready && !ended_itself) sweep_unfinished(step, place);
  // One that failed before there was a container has removed what it had made, and another node may have the name now.
  const bool cleaned_up = ended_itself && (!ready || (*status)->success());
  if (scratch_path.empty() || cleaned_up) return true;
  const auto cleaned =
      Cleaner::of_scratch(step.launcher, step.user, scratch_path).run([&] { return step.config.id_ranges; }, kEndLimit);
  return cleaned && *cleaned && (*cleaned)->success();
}

}  // namespace situla
