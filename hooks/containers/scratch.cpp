#include "hooks/containers/scratch.hpp"

#include <csignal>
#include <ctime>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/sys/directory.hpp"
#include "common/sys/fd_path.hpp"
#include "common/sys/file.hpp"
#include "common/sys/kernel.hpp"
#include "common/sys/mount/id_maps.hpp"
#include "common/sys/mount/namespaces.hpp"
#include "common/sys/private_directory.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/socket.hpp"
#include "hooks/containers/own_ids.hpp"
#include "hooks/containers/running_processes.hpp"

namespace situla {
namespace {

/// What `start` has left whose child, below, was killed: Slurm kills what a step leaves running. Each has a lock as
/// long as its own. What a container with a range has left waits for one that has it, too, which can remove all of it.
void remove_forgotten(int parent_directory) {
  constexpr time_t kLeastAge = 60;
  const auto names = list_directory(parent_directory, "ENROOT_TEMP_PATH");
  const std::string prefix = start_prefix();
  if (!names) return;
  for (const std::string& name : *names) {
    if (!name.starts_with(prefix)) continue;
    const auto place = open_file_at(parent_directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    struct stat status {};
    if (!place || fstat(place->get(), &status) != 0 || status.st_uid != geteuid()) continue;
    if (status.st_ctim.tv_sec + kLeastAge > std::time(nullptr)) continue;
    if (flock(place->get(), LOCK_EX | LOCK_NB) != 0) continue;
    if (own_id_range() || owns_directories(parent_directory, name)) (void)remove_tree_at(parent_directory, name);
  }
}

/// The child of remove_at_exit(). It has none of its parent's descriptors, so that it keeps nobody waiting, and is in a
/// session of its own, so that nothing sent to a terminal's or step's process group ends it early.
[[noreturn]] void wait_and_remove(const ProcessEnd& process, int ready, int parent_directory, const std::string& name) {
  (void)setsid();
  for (const int number : {SIGHUP, SIGINT, SIGTERM, SIGQUIT}) (void)std::signal(number, SIG_IGN);
  const UniqueFd lock(openat(parent_directory, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  const bool locked = lock && flock(lock.get(), LOCK_EX | LOCK_NB) == 0;
  // Who may make none has mounted nothing here either, and makes its mounts in a namespace of its own.
  const auto apart = unshare_namespaces(kMountNs);
  (void)send_packet(ready, apart || apart.error().errnum() == EPERM ? "ready" : "failed");
  close_other_fds(0, {process.fd(), parent_directory, locked ? lock.get() : parent_directory});
  if (name.starts_with(kStartPrefix)) remove_forgotten(parent_directory);
  process.wait();
  _exit(remove_tree_at(parent_directory, name) ? 0 : 1);
}

Result<UniqueFd> open_parent(ScratchPlaceKind kind, const std::string& parent) {
  if (kind == ScratchPlaceKind::temporary) {
    TRY(make_directories(parent, 0700));
    return open_file(parent, O_RDONLY | O_DIRECTORY);
  }
  TRY_ASSIGN(PrivateDirectory data, PrivateDirectory::open_or_make(parent, "ENROOT_DATA_PATH"));
  return std::move(data).take_fd();
}

}  // namespace

Result<Scratch> Scratch::make(ScratchPlaceKind kind, const std::string& parent, const std::string& name,
                              const ScratchNotice& notice) {
  auto opened = open_parent(kind, parent);
  if (!opened) return fail(std::move(opened).error().with_code(ErrorCode::enroot_config));
  UniqueFd directory = std::move(*opened);
  const auto make_announced = [&](const std::string& used) {
    if (notice) notice(parent + "/" + used);
    return mkdirat(directory.get(), used.c_str(), 0700);
  };
  // What another has made must not be announced as ours, so this looks first.
  const bool taken = faccessat(directory.get(), name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
  std::string used = taken ? random_name(name + ".") : name;
  int made = make_announced(used);
  if (made != 0 && errno == EEXIST) {
    used = random_name(name + ".");
    made = make_announced(used);
  }
  if (made != 0) return fail_errno(errno, "create directory " + parent + "/" + used);
  std::string path = parent + "/" + used;
  TRY_ASSIGN(UniqueFd made_one, open_file_at(directory.get(), used, O_PATH | O_DIRECTORY | O_NOFOLLOW));
  TRY(check_private(made_one.get(), path, {}));
  return Scratch(std::move(directory), std::move(made_one), std::move(used), std::move(path));
}

std::string Scratch::held() const {
  return fd_path(directory_.get());
}

Scratch& Scratch::operator=(Scratch&& other) noexcept {
  if (this == &other) return *this;
  remove();
  parent_ = std::move(other.parent_);
  directory_ = std::move(other.directory_);
  name_ = std::move(other.name_);
  path_ = std::move(other.path_);
  at_exit_ = other.at_exit_;
  return *this;
}

Result<void> Scratch::remove_at_exit() {
  TRY_ASSIGN(const ProcessEnd self, ProcessEnd::of(getpid()));
  TRY_ASSIGN(auto sockets, socket_pair());
  TRY_ASSIGN(Child child, fork_child());
  if (!child) wait_and_remove(self, sockets.second.get(), parent_.get(), name_);
  sockets.second.reset();
  TRY_ASSIGN(const auto answer, receive_packet(sockets.first.get(), 16));
  if (!answer || answer->bytes != "ready")
    return fail(Error(ErrorKind::failure, "start the process that will remove " + path_).with_code(ErrorCode::helper));
  (void)child.release();
  at_exit_ = true;
  return {};
}

void Scratch::remove() {
  if (parent_ && !at_exit_) (void)remove_tree_at(parent_.get(), name_);
  parent_.reset();
  directory_.reset();
}

}  // namespace situla
