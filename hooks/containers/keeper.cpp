#include "hooks/containers/keeper.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <iterator>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/base/wire.hpp"
#include "common/sys/fd_path.hpp"
#include "common/sys/file.hpp"
#include "common/sys/mount/mount_api.hpp"
#include "common/sys/mount/namespaces.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/socket.hpp"
#include "hooks/containers/container_process.hpp"
#include "hooks/containers/running_processes.hpp"
#include "hooks/mount/image_mount.hpp"
#include "hooks/mount/overlay.hpp"

namespace situla {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{30};
constexpr std::chrono::milliseconds kBusyPause{300};
constexpr std::chrono::milliseconds kLongestPause{20};
constexpr int kClientPatience = 1000;  // milliseconds
constexpr size_t kMaxPacket = 8192;
// Beneath the container's state directory.
constexpr const char* kLockName = "keeper";
constexpr const char* kSocketName = "socket";
// What the keeper is asked, with pidfds of those who use the mount: for the mount, or only to keep it for them.
constexpr const char* kMount = "mount";
constexpr const char* kKeep = "keep";
constexpr size_t kMostUsers = 2;
// Its word when it has mounted the layers; with the mount, its step follows.
constexpr WireForm kFailure{"error of a container's keeper", 0x534b0001, kMaxPacket, kMaxPacket / 4};
constexpr std::string_view kOk = "ok";
// Its word when the layers are still mounted by one that was killed.
constexpr std::string_view kBusy = "busy";

std::string socket_path(int state) {
  return fd_path(state) + "/" + kSocketName;
}

/// Whose cgroups this process is in, and so what it ends with: a step, "12.0" or "12.batch", or a job, "12", as what
/// serves a named container of steps (plugin/broker/node/cgroup_place.hpp). Empty: Slurm uses no cgroups or names them
/// by SLUIDs, or it is no job.
std::string own_job_or_step() {
  constexpr std::string_view kJob = "/job_", kStep = "/step_";
  const std::string cgroups = read_file("/proc/self/cgroup").value_or("");
  std::string found;
  for (const std::string_view line : split_nonempty(cgroups, '\n')) {
    const size_t job = line.find(kJob);
    if (job == line.npos) continue;
    const size_t step = line.find(kStep, job);
    const std::string_view number = line.substr(job + kJob.size(), line.find('/', job + 1) - job - kJob.size());
    found = number;
    if (step == line.npos) continue;
    const std::string_view rest = line.substr(step + kStep.size());
    return found + "." + std::string(rest.substr(0, rest.find('/')));
  }
  return found;
}

/// An error on its way from the keeper.
std::string pack(const Error& error) {
  return to_wire(SentError::of(error), kFailure);
}

Error unpack(std::string_view bytes) {
  const auto sent = from_wire<SentError>(bytes, kFailure);
  return sent ? sent->error() : sent.error();
}

/// Who uses the mount from now on: this process, which becomes the program, and for a step its parent, the broker. The
/// broker holds the container while no process is in it: before its first task, between two, and before those of a step
/// that joins.
Result<std::vector<UniqueFd>> users_of_mount(bool for_step) {
  std::vector<UniqueFd> users;
  TRY_ASSIGN(UniqueFd self, open_pidfd(getpid()));
  users.push_back(std::move(self));
  if (!for_step) return users;
  const pid_t parent = getppid();
  TRY_ASSIGN(UniqueFd broker, open_pidfd(parent));
  // If it has ended meanwhile, the number may be another process's.
  if (parent != 1 && getppid() == parent) users.push_back(std::move(broker));
  return users;
}

std::vector<int> numbers(const std::vector<UniqueFd>& fds) {
  std::vector<int> all;
  all.reserve(fds.size());
  for (const UniqueFd& fd : fds) all.push_back(fd.get());
  return all;
}

class Keeper {
 public:
  Keeper(FileLock lock, std::vector<UniqueFd> users)
      : lock_(std::move(lock)), step_(own_job_or_step()), users_(std::move(users)) {}

  /// Makes the mount, in a mount namespace of this process's own. When it returns, nothing of the host is mounted there
  /// any more: the namespace would keep every disk of the node busy.
  Result<void> set_up(const NamedContainer& found, const ContainerRequest& request, LogSink& log) {
    const std::string stage_path = request.stage();
    TRY(unshare_namespaces(kMountNs));
    TRY(set_propagation("/", Propagation::private_mount, true));
    TRY_ASSIGN(const NamedContainer container, reopen_container(found));
    TRY_ASSIGN(proc_, open_file("/proc", O_RDONLY | O_DIRECTORY));
    TRY_ASSIGN(state_, open_file(container.state(), O_RDONLY | O_DIRECTORY));
    TRY_ASSIGN(const UniqueFd point, open_file(stage_path, O_PATH | O_DIRECTORY));
    TRY(mount_new_at(point.get(), "tmpfs", "tmpfs", {{"mode", "700"}}, {.no_suid = true, .no_dev = true}, stage_path));
    // Left by a keeper that was killed, whose mount may live on in somebody's mount namespace.
    const bool left = faccessat(state_.get(), kSocketName, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    if (left && overlay_upper_in_use(container.upper(), stage_path))
      return fail_errno(EBUSY, "mount the container's layers");
    (void)unlinkat(state_.get(), kSocketName, 0);
    TRY(mount_layers(container, request, log));
    TRY_ASSIGN(const UniqueFd stage, open_file(stage_path, O_PATH | O_DIRECTORY));
    TRY_ASSIGN(listener_, listen_at(socket_path(state_.get())));
    return pivot_into(stage.get());
  }

  /// Leaves whatever the first user had open: nobody shall wait for this process at the end of a pipe.
  Result<void> drop_descriptors(const UniqueFd& null) {
    for (const int number : {0, 1, 2})
      if (dup2(null.get(), number) < 0) return fail_errno(errno, "close the standard streams");
    std::vector<int> kept = numbers(users_);
    kept.insert(kept.end(), {lock_.fd(), proc_.get(), state_.get(), listener_.get(), root_.get(), server_.pidfd.get()});
    close_other_fds(3, kept);
    return {};
  }

  void keep() {
    while (!server_ended_ && (!users_.empty() || somebody_is_left())) wait();
    listener_.reset();
    root_.reset();
    // Before the lock goes: the next mount must not overlap with this one.
    if (!unmount("/root", false)) (void)unmount("/root", true);
    (void)unlinkat(state_.get(), kSocketName, 0);
  }

 private:
  Result<void> mount_layers(const NamedContainer& container, const ContainerRequest& request, LogSink& log) {
    const std::string root = request.stage() + "/root";
    if (mkdir(root.c_str(), 0755) != 0) return fail_errno(errno, "create directory " + root);
    std::string lower = request.root.mounted;
    if (lower.empty()) {
      lower = request.stage() + "/image";
      if (mkdir(lower.c_str(), 0755) != 0) return fail_errno(errno, "create directory " + lower);
      TRY_ASSIGN(const UniqueFd image, open_file(container.image(), O_RDONLY));
      TRY_ASSIGN(server_, serve_image(image.get(), lower, request.inside_uid(), request.inside_gid(), log));
    }
    TRY_ASSIGN(const UniqueFd target, open_file(root, O_PATH | O_DIRECTORY));
    const OverlayLayers layers{
        .lower = {lower}, .upper = container.upper(), .work = container.work(), .source = container_mark(container)};
    TRY(mount_overlay(layers, target.get(), {.no_suid = true, .no_dev = true}, log));
    TRY_ASSIGN(root_, open_file(root, O_RDONLY | O_DIRECTORY));
    struct stat status {};
    if (fstat(root_.get(), &status) != 0) return fail_errno(errno, "inspect " + root);
    device_ = status.st_dev;
    return {};
  }

  /// Those who asked have ended. Programs that they left running in the background still need their files.
  bool somebody_is_left() {
    // Twice, for whoever was forked behind the back of the first search.
    for (int attempt = 0; attempt < 2 && users_.empty(); ++attempt) users_ = mount_users(proc_.get(), device_);
    pollfd waiting{listener_.get(), POLLIN, 0};
    return !users_.empty() || poll(&waiting, 1, 0) > 0;
  }

  void wait() {
    std::vector<pollfd> events = {{listener_.get(), POLLIN, 0}, {server_.pidfd.get(), POLLIN, 0}};
    for (const UniqueFd& user : users_) events.push_back({user.get(), POLLIN, 0});
    if (poll(events.data(), events.size(), -1) < 0) return;
    for (size_t i = users_.size(); i-- > 0;)
      if (events[i + 2].revents != 0) users_.erase(users_.begin() + static_cast<std::ptrdiff_t>(i));
    server_ended_ = events[1].revents != 0;
    if (events[0].revents != 0) (void)answer();
  }

  Result<void> answer() {
    TRY_ASSIGN(const UniqueFd client, accept_from(listener_.get()));
    TRY_ASSIGN(const PeerCredentials peer, peer_credentials(client.get()));
    if (peer.uid != geteuid()) return fail(ErrorKind::denied, "answer another user");
    pollfd event{client.get(), POLLIN, 0};
    if (poll(&event, 1, kClientPatience) <= 0) return fail(ErrorKind::failure, "wait for a request");
    TRY_ASSIGN(auto packet, receive_packet(client.get(), kMaxPacket));
    if (!packet || packet->fds.empty() || packet->fds.size() > kMostUsers)
      return fail(ErrorKind::failure, "read a request");
    std::move(packet->fds.begin(), packet->fds.end(), std::back_inserter(users_));
    if (packet->bytes == kKeep) return send_packet(client.get(), kOk);
    const auto clone = clone_tree(root_.get(), false);
    if (!clone) return send_packet(client.get(), pack(clone.error()));
    // What the kernel has mounted stays with those who have it.
    return send_packet(client.get(), std::string(kOk) + (server_ ? step_ : ""), {clone->fd()});
  }

  FileLock lock_;
  std::string step_;  ///< it ends with, and then nobody serves the image
  UniqueFd proc_, state_, listener_, root_;
  ImageServer server_;  ///< empty: the kernel has the image mounted
  dev_t device_ = 0;
  bool server_ended_ = false;
  std::vector<UniqueFd> users_;  ///< pidfds
};

/// In the keeper's process.
[[noreturn]] void keep(FileLock lock, std::vector<UniqueFd> users, const NamedContainer& container,
                       const ContainerRequest& request, UniqueFd report, LogSink& log) {
  (void)setsid();
  for (const int number : {SIGHUP, SIGINT, SIGTERM, SIGQUIT}) (void)std::signal(number, SIG_IGN);
  const ProcessName name("situla-keeper");
  Keeper keeper(std::move(lock), std::move(users));
  auto ready = [&]() -> Result<void> {
    TRY_ASSIGN(const UniqueFd null, open_file("/dev/null", O_RDWR));
    TRY(keeper.set_up(container, request, log));
    TRY(send_packet(report.get(), kOk));
    report.reset();
    return keeper.drop_descriptors(null);
  }();
  const bool busy = !ready && ready.error().errnum() == EBUSY;
  if (!ready && report) (void)send_packet(report.get(), busy ? std::string(kBusy) : pack(ready.error()));
  if (ready) keeper.keep();
  _exit(ready ? 0 : 1);
}

/// Returns when it answers; false: programs still use the mount of one that was killed.
Result<bool> start_keeper(FileLock lock, const NamedContainer& container, const ContainerRequest& request,
                          LogSink& log) {
  TRY_ASSIGN(std::vector<UniqueFd> users, users_of_mount(request.for_step()));
  TRY_ASSIGN(auto sockets, socket_pair());
  TRY_ASSIGN(Child between, fork_child());
  if (!between) {
    // A grandchild: the program that this process becomes shall not meet children that it did not make.
    auto keeper = fork_child();
    if (keeper && !*keeper) keep(std::move(lock), std::move(users), container, request, std::move(sockets.second), log);
    if (keeper) (void)keeper->release();
    _exit(keeper ? 0 : 1);
  }
  sockets.second.reset();
  TRY(between.wait());
  TRY_ASSIGN(const auto packet, receive_packet(sockets.first.get(), kMaxPacket));
  const std::string answer = packet ? packet->bytes : "";
  if (answer.empty())
    return fail(Error(ErrorKind::failure, "mount the container's layers: the helper process died")
                    .with_code(ErrorCode::helper));
  if (answer != kOk && answer != kBusy) return fail(unpack(answer));
  return answer == kOk;
}

Error not_acquired(const NamedContainer& container) {
  return Error(ErrorKind::failure, "Could not acquire rootfs lock: " + container.path +
                                       " is used by programs whose keeper was killed, or by another node")
      .with_code(ErrorCode::container_in_use)
      .with_hint("end them; `remove` and read-only starts work meanwhile");
}

struct KeptLayers {
  DetachedMount mount;
  std::string owner;  ///< own_job_or_step() of the keeper
};

/// nullopt: there is no keeper, or it is about to begin or to end.
Result<std::optional<KeptLayers>> ask_keeper(int state, bool for_step) {
  const auto socket = connect_to(socket_path(state));
  if (!socket) return std::optional<KeptLayers>();
  TRY_ASSIGN(const std::vector<UniqueFd> users, users_of_mount(for_step));
  if (!send_packet(socket->get(), kMount, numbers(users))) return std::optional<KeptLayers>();
  auto answer = receive_packet(socket->get(), kMaxPacket);
  if (!answer || !*answer) return std::optional<KeptLayers>();
  if ((*answer)->fds.size() != 1) return fail(unpack((*answer)->bytes));
  const std::string& said = (*answer)->bytes;
  return KeptLayers{DetachedMount(std::move((*answer)->fds[0])),
                    said.starts_with(kOk) ? printable(said.substr(kOk.size())) : ""};
}

void warn_of_other_owner(const NamedContainer& container, const ContainerRequest& request, const std::string& owner,
                         LogSink& log) {
  const std::string own = own_job_or_step();
  if (owner.empty() || own == owner || own.starts_with(owner + ".")) return;
  const std::string what = owner.find('.') == std::string::npos ? "job" : "step";
  const std::string directory = container.path.substr(container.path.rfind('/') + 1);
  const std::string& name = request.spec.name.empty() ? directory : request.spec.name;
  log.warning("the files of container \"" + printable(name) + "\" are kept by " + what + " " + owner +
              " and go when that " + what + " ends");
}

}  // namespace

Result<DetachedMount> join_layers(const NamedContainer& container, const ContainerRequest& request, LogSink& log) {
  TRY_ASSIGN(const UniqueFd state, open_file(container.state(), O_RDONLY | O_DIRECTORY));
  const auto deadline = Clock::now() + kPatience;
  for (auto pause = std::chrono::milliseconds(1);; pause = std::min(pause * 2, kLongestPause)) {
    TRY_ASSIGN(auto kept, ask_keeper(state.get(), request.for_step()));
    if (kept) {
      warn_of_other_owner(container, request, kept->owner, log);
      return std::move(kept->mount);
    }
    TRY_ASSIGN(UniqueFd file, open_file_at(state.get(), kLockName, O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
    auto lock = FileLock::acquire(std::move(file), FileLock::Kind::exclusive, std::chrono::milliseconds(0), kLockName);
    if (!lock && lock.error().errnum() != EWOULDBLOCK)
      return fail(std::move(lock).error().with_context("Could not acquire rootfs lock"));
    if (lock) {
      TRY_ASSIGN(const bool started, start_keeper(std::move(*lock), container, request, log));
      if (started) continue;
      pause = kBusyPause;
    }
    if (Clock::now() > deadline) return fail(not_acquired(container));
    std::this_thread::sleep_for(pause);
  }
}

void keep_layers_for_broker(const NamedContainer& container) {
  if (container.kind != NamedContainer::Kind::layered) return;
  const auto state = open_file(container.state(), O_RDONLY | O_DIRECTORY);
  const auto socket = state ? connect_to(socket_path(state->get())) : fail(state.error());
  const auto users = users_of_mount(true);
  if (!socket || !users || !send_packet(socket->get(), kKeep, numbers(*users))) return;
  (void)receive_packet(socket->get(), kMaxPacket);
}

}  // namespace situla
