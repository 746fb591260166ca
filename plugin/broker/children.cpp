#include "plugin/broker/children.hpp"

#include <array>
#include <csignal>

#include <fcntl.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include "common/base/installation.hpp"
#include "common/base/parts.hpp"
#include "common/sys/cgroup.hpp"
#include "common/sys/file.hpp"
#include "common/sys/mount_api.hpp"
#include "common/sys/namespaces.hpp"
#include "common/sys/socket.hpp"
#include "plugin/broker/contract.hpp"
#include "plugin/broker/operation.hpp"

namespace situla {
namespace {

constexpr std::chrono::seconds kReleaseLimit{5};
constexpr int kMaxLastWords = 256;  // messages
constexpr const char* kPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

SpawnOptions program(const char* name, std::vector<std::string> arguments) {
  SpawnOptions options;
  options.program = libexec_path(name);
  options.arguments = {name};
  options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
  options.environment = {kPath};
  return options;
}

struct Line {
  UniqueFd ours, theirs;
};
/// To a helper. Ours does not block: a user who holds the other end, and neither reads nor closes it, must not stop us.
Result<Line> line_to_helper() {
  TRY_ASSIGN(auto sockets, socket_pair());
  if (fcntl(sockets.first.get(), F_SETFL, O_NONBLOCK) != 0) return fail_errno(errno, "prepare a socket");
  return Line{std::move(sockets.first), std::move(sockets.second)};
}

/// Ends a forked child with its error told to the broker; `fds` are the places where the socket may be by now.
[[noreturn]] void exit_with(const Error& error, std::initializer_list<int> fds) {
  for (const int fd : fds)
    if (send_packet(fd, encode(Failure{error.kind(), error.message(), error.hint()}))) break;
  _exit(1);
}

/// Forks; the child becomes `who` and executes `options`. Errors after the fork go to `report_fd`, if there is one.
Result<Child> start_as(const Identity& who, bool without_capabilities, const SpawnOptions& options, int report_fd) {
  TRY_ASSIGN(Child child, fork_child());
  if (child) return child;
  const int report_target = options.fds.empty() ? -1 : 3;
  // The bounding set needs CAP_SETPCAP to be emptied, so it goes before the identity does.
  if (without_capabilities)
    if (auto done = drop_bounding_set(); !done) exit_with(done.error(), {report_fd});
  if (auto done = become(who); !done) exit_with(done.error(), {report_fd});
  if (without_capabilities)
    if (auto done = drop_all_capabilities(); !done) exit_with(done.error(), {report_fd});
  exit_with(execute(options), {report_fd, report_target});
}

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

/// In a forked child, at the end of what it does as root; returns only with an error.
Error execute_as(const Identity& user, const std::string& directory, const SpawnOptions& options) {
  if (auto done = become(user); !done) return std::move(done).error();
  SpawnOptions as_user = options;
  // As the user: a directory that only the user may enter (NFS with root squash) works, one that is not the user's does
  // not.
  if (chdir(directory.c_str()) == 0) as_user.directory = directory;
  return execute(as_user);
}

/// Runs in the forked child; returns only with an error. Moving is best effort: a hierarchy that refuses costs
/// accounting, not safety.
Error run_in_place(const Identity& user, const TaskPlace& place, const SpawnOptions& options) {
  (void)move_to_cgroups(getpid(), place.cgroups);
  if (auto entered = enter_mount_namespace(place.mounts); !entered) return std::move(entered).error();
  return execute_as(user, place.directory, options);
}

/// Runs in the forked child; returns only with an error. The job's cgroup is no place any more: Slurm may be killing
/// all that lives there. In a pid namespace of its own whatever the program starts ends with it.
Error run_release(const UserImport& import, const SpawnOptions& options) {
  if (auto entered = enter_mount_namespace(import.place.mounts); !entered) return std::move(entered).error();
  if (auto unshared = unshare_namespaces(kPidNs); !unshared) return std::move(unshared).error();
  if (auto bound = die_with_parent(); !bound) return std::move(bound).error();
  auto child = fork_child();
  if (!child) return std::move(child).error();
  if (!*child) return execute_as(import.user, import.place.directory, options);
  const auto status = child->wait();
  _exit(status && status->success() ? 0 : 1);
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

/// Runs in the forked child; returns only with an error.
Error run_builder(const BuilderInput& input, const BuilderImage& image, const SpawnOptions& options) {
  const std::string& cgroups = input.place.cgroups;
  (void)move_to_cgroups(getpid(), input.outlives_step ? job_cgroups(cgroups) : step_cgroups(cgroups));
  if (auto staged = stage_root(input, image); !staged)
    return std::move(staged).error().with_context(phrase(RootOperation::stage_root));
  return execute_as(input.user, input.place.directory, options);
}

/// A helper of the user in the task's place, with a socket to it.
Result<Helper> start_in_place(const Identity& user, const TaskPlace& place, SpawnOptions options) {
  TRY_ASSIGN(Line line, line_to_helper());
  options.fds.insert(options.fds.begin(), {line.theirs.get(), builder_fd::kBroker});
  TRY_ASSIGN(Child child, fork_child());
  if (!child) exit_with(run_in_place(user, place, options), {line.theirs.get(), builder_fd::kBroker});
  return Helper{std::move(child), std::move(line.ours)};
}

}  // namespace

Result<TaskPlace> TaskPlace::of(int proc_fd, std::string directory) {
  TaskPlace place;
  TRY_ASSIGN(place.mounts, open_file_at(proc_fd, "ns/mnt", O_RDONLY));
  // A node without cgroups does without.
  place.cgroups = cgroups_of(proc_fd).value_or("");
  place.directory = std::move(directory);
  return place;
}

Result<ImportHelpers> start_import(const SiteConfig& config, const Identity& user, int spec_fd, int environment_fd) {
  TRY_ASSIGN(const Identity service, identity_of_user(config.service_user));
  TRY_ASSIGN(Line line, line_to_helper());
  TRY_ASSIGN(Line user_line, line_to_helper());
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return fail_errno(errno, "create pipe");
  const UniqueFd reader(ends[0]);
  const UniqueFd writer(ends[1]);

  SpawnOptions importer = program("situla-importer", {"--store", config.store_path});
  importer.fds = {{reader.get(), 0}, {line.theirs.get(), importer_fd::kBroker}};
  SpawnOptions request = program("situla-builder", {"request"});
  request.fds = {{user_line.theirs.get(), builder_fd::kBroker},
                 {spec_fd, builder_fd::kSpec},
                 {environment_fd, builder_fd::kEnvironment},
                 {writer.get(), builder_fd::kOutput}};

  ImportHelpers helpers;
  TRY_ASSIGN(helpers.importer.process, start_as(service, true, importer, line.theirs.get()));
  TRY_ASSIGN(helpers.request_writer.process, start_as(user, false, request, user_line.theirs.get()));
  helpers.importer.socket = std::move(line.ours);
  helpers.request_writer.socket = std::move(user_line.ours);
  return helpers;
}

Result<Helper> start_user_import(const UserImport& input) {
  if (!input.site.path.empty()) TRY(make_site_directory(input.site.runtime, input.user));
  SpawnOptions options = program(
      "situla-importer", input.site.path.empty() ? std::vector<std::string>{"user"} : site_words("get", input.site));
  options.fds = {{input.spec_fd, builder_fd::kSpec}, {input.environment_fd, builder_fd::kEnvironment}};
  return start_in_place(input.user, input.place, std::move(options));
}

void refresh_inventory(const SiteConfig& config) {
  if (!built_in(Part::gpu)) return;
  const std::string& root = config.device_settings.device_root;
  if (access(((root == "/" ? "" : root) + "/proc/driver/nvidia/version").c_str(), F_OK) != 0) return;
  if (const auto started = spawn_detached(program("situla-inventory", {"--if-stale"})); !started)
    syslog(LOG_WARNING, "%s: %s", phrase(RootOperation::keep_inventory).data(), started.error().message().c_str());
}

Result<Helper> start_unfinished_sweeper(const Identity& user, const TaskPlace& place, int spec_fd, int environment_fd) {
  SpawnOptions options = program("situla-builder", {"sweep"});
  options.fds = {{spec_fd, builder_fd::kSpec}, {environment_fd, builder_fd::kEnvironment}};
  // Not in the step's cgroup: there it would be killed with the builder.
  TaskPlace apart;
  TRY_ASSIGN(apart.mounts, duplicate_fd(place.mounts.get(), "the task's mount namespace"));
  apart.cgroups = job_cgroups(place.cgroups);
  apart.directory = place.directory;
  return start_in_place(user, apart, std::move(options));
}

Result<Helper> start_saver(const SaverInput& input) {
  SpawnOptions options = program("situla-saver", {});
  options.fds = {{input.spec_fd, builder_fd::kSpec},
                 {input.environment_fd, builder_fd::kEnvironment},
                 {input.directory_fd, saver_fd::kDirectory}};
  if (input.image_fd >= 0) options.fds.emplace_back(input.image_fd, saver_fd::kImage);
  return start_in_place(input.user, input.place, std::move(options));
}

Result<void> release_site_image(const UserImport& import) {
  TRY_ASSIGN(Line line, line_to_helper());
  SpawnOptions options = program("situla-importer", site_words("release", import.site));
  options.fds = {{line.theirs.get(), builder_fd::kBroker},
                 {import.spec_fd, builder_fd::kSpec},
                 {import.environment_fd, builder_fd::kEnvironment}};
  TRY_ASSIGN(Child child, fork_child());
  if (!child) exit_with(run_release(import, options), {line.theirs.get(), builder_fd::kBroker});
  line.theirs.reset();
  TRY_ASSIGN(const auto status, child.wait_for(kReleaseLimit));
  if (!status)
    return fail(ErrorKind::failure, import.site.path + " release: took longer than " +
                                        std::to_string(kReleaseLimit.count()) + " s and was killed");
  if (status->success()) return {};
  // What it complained about comes first; the last message says how it ended.
  Error error(ErrorKind::failure, import.site.path + " release: " + status->text());
  for (int count = 0; count < kMaxLastWords; ++count) {
    const auto packet = receive_packet(line.ours.get(), kMaxMessageBytes);
    if (!packet || !*packet) break;
    const auto message = decode((*packet)->bytes);
    const auto* failure = message ? std::get_if<Failure>(&*message) : nullptr;
    if (failure != nullptr) error = Error(failure->kind, failure->text).with_hint(failure->hint);
  }
  return fail(std::move(error));
}

Result<Helper> start_builder(const BuilderInput& input, const BuilderImage& image) {
  TRY_ASSIGN(Line line, line_to_helper());
  SpawnOptions options = program("situla-builder", {"container", image.mode, input.scratch_name});
  options.fds = {{line.theirs.get(), builder_fd::kBroker},
                 {input.spec_fd, builder_fd::kSpec},
                 {input.environment_fd, builder_fd::kEnvironment}};
  if (image.file) options.fds.emplace_back(image.file.get(), builder_fd::kImage);
  // It may hold a writable layer or a FUSE server for tasks that run on when the broker is lost: it cleans up by
  // itself.
  options.die_with_parent = false;
  TRY_ASSIGN(Child child, fork_child());
  if (!child) exit_with(run_builder(input, image, options), {line.theirs.get(), builder_fd::kBroker});
  return Helper{std::move(child), std::move(line.ours)};
}

Result<Child> start_store_sweeper(const SiteConfig& config) {
  TRY_ASSIGN(const Identity service, identity_of_user(config.service_user));
  return start_as(service, true, program("situla-importer", {"--store", config.store_path, "--sweep"}), -1);
}

Result<Child> start_job_cleaner(uid_t user, uint32_t job, int environment_fd) {
  TRY_ASSIGN(const Account account, account_of(user));
  SpawnOptions options = program("situla-builder", {"epilog", std::to_string(job), account.home});
  if (environment_fd >= 0) options.fds = {{environment_fd, builder_fd::kEnvironment}};
  return start_as(account.identity, false, options, -1);
}

Result<Child> start_cleaner(const Identity& user, const std::string& path) {
  return start_as(user, false, program("situla-builder", {"clean", path}), -1);
}

}  // namespace situla
