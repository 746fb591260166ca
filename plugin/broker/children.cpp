#include "plugin/broker/children.hpp"

#include <array>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include "common/base/parts.hpp"
#include "common/sys/cgroup.hpp"
#include "common/sys/file.hpp"
#include "common/sys/mount_api.hpp"
#include "common/sys/namespaces.hpp"
#include "common/sys/secrecy.hpp"
#include "common/sys/socket.hpp"
#include "plugin/broker/contract.hpp"
#include "plugin/broker/operation.hpp"

namespace situla {
namespace {

constexpr std::chrono::seconds kReleaseLimit{5};
constexpr int kMaxLastWords = 256;  // messages
constexpr std::chrono::milliseconds kLookLimit{5000};

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

/// RootOperation::stage_root. After it nothing here is root any more.
Result<void> stage_root(const BuilderInput& input, const BuilderImage& image) {
  TRY(enter_mount_namespace(input.place.mounts));
  TRY(unshare_namespaces(kMountNs));
  // Slave, not private: what automount or the administrator mounts on the node later still appears below bind mounts of
  // the container; nothing goes the other way.
  TRY(set_propagation("/", Propagation::slave, true));
  TRY_ASSIGN(const UniqueFd target, open_file(kStageMount, O_PATH | O_DIRECTORY | O_NOFOLLOW));
  MountParameters parameters = {
      {"mode", "0700"}, {"uid", std::to_string(input.user.uid)}, {"gid", std::to_string(input.user.gid)}};
  if (input.tmpfs_bytes != 0) parameters.emplace_back("size", std::to_string(input.tmpfs_bytes));
  TRY(mount_new_at(target.get(), "tmpfs", "situla", parameters, {.no_suid = true, .no_dev = true}, kStageMount));
  TRY_ASSIGN(const UniqueFd stage, open_file(kStageMount, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  for (const char* name : {kStageImage, kStageDirectory}) {
    if (mkdirat(stage.get(), name, 0700) != 0 ||
        fchownat(stage.get(), name, input.user.uid, input.user.gid, AT_SYMLINK_NOFOLLOW) != 0)
      return fail_errno(errno, std::string("make directory ") + kStageMount + "/" + name);
  }
  if (!image.mount) return {};
  TRY_ASSIGN(const UniqueFd place, open_file_at(stage.get(), kStageImage, O_PATH | O_DIRECTORY | O_NOFOLLOW));
  UniqueFd mount(dup(image.mount.get()));
  if (!mount) return fail_errno(errno, "duplicate the image mount's descriptor");
  return DetachedMount(std::move(mount)).attach(place.get());
}

/// Where the cluster's program may put the user's files, as pyxis has it below its runtime_path. Only a directory made
/// here is given away.
Result<void> make_site_directory(const std::string& runtime, const Identity& user) {
  TRY(make_directories(runtime, 0755));
  TRY_ASSIGN(const UniqueFd parent, open_file(runtime, O_RDONLY | O_DIRECTORY));
  const std::string name = std::to_string(user.uid);
  if (mkdirat(parent.get(), name.c_str(), 0700) != 0)
    return errno == EEXIST ? Result<void>() : fail_errno(errno, "make directory " + runtime + "/" + name);
  TRY_ASSIGN(const UniqueFd made, open_file_at(parent.get(), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  struct stat info {};
  if (fstat(made.get(), &info) != 0 || info.st_uid != geteuid())
    return fail(ErrorKind::denied, runtime + "/" + name + " was replaced while it was made");
  if (fchown(made.get(), user.uid, user.gid) != 0) return fail_errno(errno, "give away " + runtime + "/" + name);
  return {};
}

std::vector<std::string> site_words(const char* operation, const SiteProgram& site) {
  return {"site", operation, site.path, site.runtime, std::to_string(site.job_id), std::to_string(site.step_id)};
}

/// A helper of the user in the task's place.
Launch in_place(Program program, std::vector<std::string> arguments, CgroupPlace cgroup, const Identity& user,
                const TaskPlace& place) {
  Launch what{program, std::move(arguments), std::move(cgroup), user};
  what.prepare = [&mounts = place.mounts] { return enter_mount_namespace(mounts); };
  what.directory = place.directory;
  return what;
}

/// What may outlive the job, or comes after it: its cgroup is no place any more, for Slurm may be killing all that
/// lives there.
Launch cleaning(Program program, std::vector<std::string> arguments, const Launcher& launcher, const Identity& user) {
  Launch what{program, std::move(arguments), launcher.cgroups.cleanup(), user};
  what.own_pid_namespace = true;
  return what;
}

}  // namespace

Result<TaskPlace> TaskPlace::of(const NodeCgroups& cgroups, int proc_fd, std::string directory) {
  TaskPlace place;
  TRY_ASSIGN(place.mounts, open_file_at(proc_fd, "ns/mnt", O_RDONLY));
  TRY_ASSIGN(place.cgroups, cgroups_of(proc_fd));
  TRY(cgroups.check_task(place.cgroups));
  place.directory = std::move(directory);
  return place;
}

Result<ImportHelpers> start_import(const Launcher& launcher, const SiteConfig& config, const StoreImport& import) {
  TRY_ASSIGN(const Identity service, identity_of_user(config.service_user));
  auto import_user = identity_of_user(config.import_user);
  if (!import_user)
    return fail(Error(import_user.error().kind(), import_user.error().message())
                    .with_hint("useradd --system --shell /usr/sbin/nologin " + config.import_user +
                               ", or name another account of its own: import_user in " SITULA_SYSCONF_DIR
                               "/situla.toml"));
  if (import_user->uid == service.uid)
    return fail(Error(ErrorKind::usage, "import_user and service_user are one account")
                    .with_hint("what reads foreign bytes must have no right to the store: see situla.toml(5)"));
  TRY_ASSIGN(const auto between, socket_pair());
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return fail_errno(errno, "create pipe");
  const UniqueFd reader(ends[0]);
  ImportHelpers helpers;
  helpers.request = UniqueFd(ends[1]);
  Launch importer{Program::importer, {}, launcher.cgroups.broker(), std::move(*import_user), Rights::service};
  importer.fds = {{between.first.get(), importer_fd::kStore}};
  TRY_ASSIGN(helpers.importer, launch_helper(launcher.programs, std::move(importer), importer_fd::kBroker));
  Launch store{Program::store,
               {"--store", config.store_path, "--uid", std::to_string(import.uid), "--job", import.job},
               launcher.cgroups.broker(),
               service,
               Rights::service};
  store.fds = {{reader.get(), store_fd::kRequest}, {between.second.get(), store_fd::kImporter}};
  if (const int process = helpers.importer.process.pidfd(); process >= 0)
    store.fds.emplace_back(process, store_fd::kImporterProcess);
  TRY_ASSIGN(helpers.store, launch_helper(launcher.programs, std::move(store), store_fd::kBroker));
  return helpers;
}

Result<void> start_request_writer(const Launcher& launcher, const Identity& user, int spec_fd, int environment_fd,
                                  ImportHelpers& helpers) {
  TRY_ASSIGN(const CgroupPlace place, launcher.cgroups.step());
  TRY_CONTEXT(phrase(RootOperation::move_to_cgroup), move_to_cgroups(helpers.importer.process.pid(), place.text()));
  Launch writer{Program::builder, {"request"}, place, user};
  writer.fds = {{spec_fd, builder_fd::kSpec},
                {environment_fd, builder_fd::kEnvironment},
                {helpers.request.get(), builder_fd::kOutput}};
  TRY_ASSIGN(helpers.request_writer, launch_helper(launcher.programs, std::move(writer), builder_fd::kBroker));
  helpers.request.reset();
  return {};
}

Result<ImportHelpers> start_user_import(const Launcher& launcher, const UserImport& input) {
  if (!input.site.path.empty()) TRY(make_site_directory(input.site.runtime, input.user));
  TRY_ASSIGN(CgroupPlace place, launcher.cgroups.step());
  Launch what = in_place(Program::importer,
                         input.site.path.empty() ? std::vector<std::string>{"user"} : site_words("get", input.site),
                         std::move(place), input.user, input.place);
  TRY_ASSIGN(Parcel parcel, make_parcel());
  what.fds = {{input.spec_fd, builder_fd::kSpec},
              {input.environment_fd, builder_fd::kEnvironment},
              {parcel.in.get(), builder_fd::kOutput}};
  ImportHelpers helpers;
  TRY_ASSIGN(helpers.importer, launch_helper(launcher.programs, std::move(what), builder_fd::kBroker));
  helpers.parcel = std::move(parcel.out);
  return helpers;
}

namespace {

/// Whether a process of the user can stand between the kernel and the file's bytes.
Result<void> check_kernel_may_read(int file) {
  constexpr int64_t kFuse = 0x65735546;     // linux/magic.h, FUSE_SUPER_MAGIC
  constexpr int64_t kOverlay = 0x794c7630;  // OVERLAYFS_SUPER_MAGIC: over such a one, maybe
  constexpr int64_t kEcryptfs = 0xf15f;
  TRY_ASSIGN(const int64_t type, filesystem_type(file));
  if (type == kFuse || type == kOverlay || type == kEcryptfs)
    return fail(ErrorKind::unsupported, "the image lies in a file system that another one serves");
  struct stat info {};
  const int flags = fcntl(file, F_GETFL);
  if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode) || flags < 0 || (flags & O_PATH) != 0 ||
      (flags & O_ACCMODE) == O_WRONLY)
    return fail(ErrorKind::unsupported, "the image is no regular file that is open for reading");
  return {};
}

}  // namespace

Result<UniqueFd> take_user_image(const Launcher& launcher, const Identity& user, int socket) {
  TRY_ASSIGN(const CgroupPlace place, launcher.cgroups.step());
  TRY_ASSIGN(const auto line, socket_pair());
  TRY_ASSIGN(Child child, fork_child());
  if (!child) {
    const auto look = [&]() -> Result<void> {
      TRY(die_with_parent());
      TRY(move_to_cgroups(getpid(), place.text()));
      TRY(become(user));
      const KeepSecrets untraceable;
      TRY_ASSIGN(const auto files, take_from_parcel(socket, Leave::there));
      TRY(check_kernel_may_read(files.back().get()));
      return send_packet(line.second.get(), "image", {files.back().get()});
    };
    const auto looked = look();
    if (!looked) (void)send_packet(line.second.get(), looked.error().message());
    _exit(0);
  }
  pollfd answer{line.first.get(), POLLIN, 0};
  if (poll(&answer, 1, static_cast<int>(kLookLimit.count())) != 1)
    return fail(ErrorKind::unsupported, "the image's file system does not answer");
  TRY_ASSIGN(auto packet, receive_packet(line.first.get(), kMaxMessageBytes));
  if (!packet) return fail(ErrorKind::unsupported, "the image cannot be looked at");
  if (packet->fds.size() != 1) return fail(ErrorKind::unsupported, packet->bytes);
  return std::move(packet->fds[0]);
}

void refresh_inventory(const Launcher& launcher, const SiteConfig& config) {
  if (!built_in(Part::gpu)) return;
  const std::string& root = config.device_settings.device_root;
  if (access(((root == "/" ? "" : root) + "/proc/driver/nvidia/version").c_str(), F_OK) != 0) return;
  Launch what{Program::inventory, {"--if-stale"}, launcher.cgroups.broker(), Identity{}, Rights::root};
  what.die_with_parent = false;
  auto started = launch(launcher.programs, what);
  if (started)
    (void)started->release();
  else
    syslog(LOG_WARNING, "%s: %s", phrase(RootOperation::keep_inventory).data(), started.error().message().c_str());
}

Result<Helper> start_unfinished_sweeper(const Launcher& launcher, const Identity& user, const TaskPlace& place,
                                        int spec_fd, int environment_fd) {
  Launch what = cleaning(Program::builder, {"sweep"}, launcher, user);
  what.prepare = [&mounts = place.mounts] { return enter_mount_namespace(mounts); };
  what.directory = place.directory;
  what.fds = {{spec_fd, builder_fd::kSpec}, {environment_fd, builder_fd::kEnvironment}};
  return launch_helper(launcher.programs, std::move(what), builder_fd::kBroker);
}

Result<Helper> start_saver(const Launcher& launcher, const SaverInput& input) {
  TRY_ASSIGN(CgroupPlace place, launcher.cgroups.step());
  Launch what = in_place(Program::saver, {}, std::move(place), input.user, input.place);
  what.fds = {{input.spec_fd, builder_fd::kSpec},
              {input.environment_fd, builder_fd::kEnvironment},
              {input.files_fd, saver_fd::kFiles}};
  if (input.image_fd >= 0) what.fds.emplace_back(input.image_fd, saver_fd::kImage);
  return launch_helper(launcher.programs, std::move(what), builder_fd::kBroker);
}

Result<void> release_site_image(const Launcher& launcher, const UserImport& import) {
  Launch what = cleaning(Program::importer, site_words("release", import.site), launcher, import.user);
  what.prepare = [&mounts = import.place.mounts] { return enter_mount_namespace(mounts); };
  what.directory = import.place.directory;
  what.fds = {{import.spec_fd, builder_fd::kSpec}, {import.environment_fd, builder_fd::kEnvironment}};
  TRY_ASSIGN(Helper helper, launch_helper(launcher.programs, std::move(what), builder_fd::kBroker));
  TRY_ASSIGN(const auto status, helper.process.wait_for(kReleaseLimit));
  if (!status)
    return fail(ErrorKind::failure, import.site.path + " release: took longer than " +
                                        std::to_string(kReleaseLimit.count()) + " s and was killed");
  if (status->success()) return {};
  // What it complained about comes first; the last message says how it ended.
  Error error(ErrorKind::failure, import.site.path + " release: " + status->text());
  for (int count = 0; count < kMaxLastWords; ++count) {
    const auto heard = hear(helper.socket.get());
    if (!heard || !*heard) break;
    const auto* failure = std::get_if<Failure>(&**heard);
    if (failure != nullptr) error = Error(failure->kind, failure->text).with_hint(failure->hint);
  }
  return fail(std::move(error));
}

Result<Helper> start_builder(const Launcher& launcher, const BuilderInput& input, const BuilderImage& image) {
  TRY_ASSIGN(CgroupPlace place, input.outlives_step ? launcher.cgroups.job() : launcher.cgroups.step());
  Launch what{Program::builder, {"container", image.mode, input.scratch_name}, std::move(place), input.user};
  what.fds = {{input.spec_fd, builder_fd::kSpec},
              {input.task_fd, builder_fd::kTask},
              {input.for_tasks_fd, builder_fd::kForTasks},
              {input.for_others_fd, builder_fd::kForOthers}};
  if (image.file) what.fds.emplace_back(image.file.get(), builder_fd::kImage);
  if (input.saved_fd >= 0) what.fds.emplace_back(input.saved_fd, builder_fd::kSaved);
  what.prepare = [&]() -> Result<void> {
    TRY_CONTEXT(phrase(RootOperation::stage_root), stage_root(input, image));
    return {};
  };
  what.directory = input.place.directory;
  // It may hold a writable layer or a FUSE server for tasks that run on when the broker is lost: it cleans up by
  // itself.
  what.die_with_parent = false;
  return launch_helper(launcher.programs, std::move(what), builder_fd::kBroker);
}

Result<Child> start_store_sweeper(const Launcher& launcher, const SiteConfig& config) {
  TRY_ASSIGN(const Identity service, identity_of_user(config.service_user));
  return launch(
      launcher.programs,
      {Program::store, {"--store", config.store_path, "--sweep"}, launcher.cgroups.broker(), service, Rights::service});
}

Result<Child> start_job_cleaner(const Launcher& launcher, uid_t user, uint32_t job, int environment_fd) {
  TRY_ASSIGN(const Account account, account_of(user));
  Launch what = cleaning(Program::builder, {"epilog", std::to_string(job), account.home}, launcher, account.identity);
  if (environment_fd >= 0) what.fds = {{environment_fd, builder_fd::kEnvironment}};
  return launch(launcher.programs, what);
}

Result<Child> start_cleaner(const Launcher& launcher, const Identity& user, const std::string& path) {
  return launch(launcher.programs, cleaning(Program::builder, {"clean", path}, launcher, user));
}

}  // namespace situla
