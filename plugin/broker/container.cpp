#include "plugin/broker/container.hpp"

#include <array>
#include <chrono>
#include <csignal>
#include <thread>

#include <fcntl.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/fd_path.hpp"
#include "common/sys/file.hpp"
#include "common/sys/mount_table.hpp"
#include "common/sys/process/process.hpp"
#include "plugin/broker/operation.hpp"

namespace situla {
namespace {

constexpr std::chrono::milliseconds kKillLimit{2000};
constexpr std::chrono::milliseconds kKillPause{10};

/// /proc/<pid>/status; empty when the process is gone.
std::string status_of(int proc_fd) {
  constexpr size_t kMaxBytes = 65536;
  const auto file = open_file_at(proc_fd, "status", O_RDONLY);
  return file ? read_all(file->get(), kMaxBytes).value_or("") : "";
}

std::optional<uint64_t> real_uid(std::string_view status) {
  constexpr std::string_view kLine = "\nUid:\t";
  const size_t line = status.find(kLine);
  if (line == std::string_view::npos) return std::nullopt;
  const auto words = split_words(status.substr(line + kLine.size(), 64));
  return words.empty() ? std::nullopt : parse_unsigned(words[0]);
}

bool has_real_uid(std::string_view status, uid_t uid) {
  return real_uid(status) == uid;
}

/// Whom a container's processes may belong to. An administrator who has joined it is none of them.
struct Members {
  NamespaceId user_namespace;
  uid_t owner = 0;
  std::optional<IdRange> range{};

  [[nodiscard]] bool have(uint64_t uid) const {
    return uid == owner || (range && uid >= range->first_uid && uid - range->first_uid < IdRange::kCount);
  }
};

/// Whether it is that one, or was made in it or in one of those: a container's processes make some of their own.
bool is_within(UniqueFd user_namespace, const NamespaceId& top) {
  for (Result<UniqueFd> each = std::move(user_namespace); each; each = parent_user_namespace(each->get())) {
    const auto id = namespace_id(each->get());
    if (!id) return false;
    if (*id == top) return true;
  }
  return false;
}

/// SIGKILL to one process if, looked at through its pidfd's lifetime, it is a member and lives in the namespace.
bool kill_member(pid_t pid, const Members& members) {
  // The pidfd first: what is read from /proc afterwards is of that process, or the signal below goes nowhere.
  const auto pidfd = open_pidfd(pid);
  if (!pidfd) return false;
  const auto proc = open_file("/proc/" + std::to_string(pid), O_PATH | O_DIRECTORY);
  if (!proc) return false;
  auto user = open_file_at(proc->get(), "ns/user", O_RDONLY);
  if (!user || !is_within(std::move(*user), members.user_namespace)) return false;
  const std::string status = status_of(proc->get());
  const auto uid = real_uid(status);
  // A zombie keeps its user namespace until its parent reaps it; there is nothing left in it to end.
  if (status.find("\nState:\tZ") != std::string::npos || !uid || !members.have(*uid)) return false;
  return signal_pidfd(pidfd->get(), SIGKILL).has_value();
}

size_t kill_members(const Members& members) {
  size_t killed = 0;
  const auto names = list_directory("/proc");
  if (!names) return 0;
  for (const std::string& name : *names) {
    const auto pid = parse_unsigned(name);
    if (pid && kill_member(static_cast<pid_t>(*pid), members)) ++killed;
  }
  return killed;
}

Result<void> check_owned_by(int namespace_fd, const NamespaceId& user) {
  TRY_ASSIGN(const UniqueFd owner, owning_user_namespace(namespace_fd));
  TRY_ASSIGN(const NamespaceId owner_id, namespace_id(owner.get()));
  if (owner_id == user) return {};
  return fail(ErrorKind::denied, "a namespace of the container does not belong to its user namespace");
}

Result<void> check_user_namespace(int user, uid_t owner) {
  TRY_ASSIGN(const UniqueFd ours, open_namespace(0, "user"));
  TRY_ASSIGN(const NamespaceId our_id, namespace_id(ours.get()));
  TRY_ASSIGN(const NamespaceId user_id, namespace_id(user));
  TRY_ASSIGN(const uid_t creator, user_namespace_owner(user));
  if (user_id == our_id || creator != owner)
    return fail(ErrorKind::denied, "the container's user namespace is not one that the job user made");
  return {};
}

/// That they are what a user's container has: a user namespace that `owner` made and that is not ours, and others that
/// belong to it. ErrorKind::denied.
Result<void> check_namespaces(const NamespaceFds& container, uid_t owner) {
  TRY(check_user_namespace(container.user.get(), owner));
  TRY_ASSIGN(const NamespaceId user_id, namespace_id(container.user.get()));
  TRY(check_owned_by(container.mount.get(), user_id));
  TRY(check_owned_by(container.cgroup.get(), user_id));
  for (const UniqueFd& other : container.others) TRY(check_owned_by(other.get(), user_id));
  return {};
}

/// All namespaces lie on one mount of the kernel's own, where nothing else does; on which one something lies the kernel
/// knows without asking any file system.
Result<UniqueFd> open_found_namespace(pid_t builder, uint32_t number, uint64_t namespaces) {
  TRY_ASSIGN(const UniqueFd place, look_at_descriptor(builder, number));
  TRY_ASSIGN(const uint64_t where, mount_id_by_proc(place.get()));
  if (where != namespaces) return fail(ErrorKind::denied, "what the builder has found is no namespace");
  return open_file(fd_path(place.get()), O_RDONLY);
}

}  // namespace

Result<UniqueFd> look_at_descriptor(pid_t builder, uint32_t number) {
  return open_file("/proc/" + std::to_string(builder) + "/fd/" + std::to_string(number), O_PATH);
}

Result<NamespaceFds> open_found_namespaces(pid_t builder, const Isolation& isolation,
                                           const std::vector<uint32_t>& numbers, uid_t owner) {
  constexpr size_t kMost = 7;
  if (numbers.size() > kMost) return fail(ErrorKind::corrupt, "the builder has found too many namespaces");
  TRY_ASSIGN(const UniqueFd own, open_namespace(0, "user"));
  TRY_ASSIGN(const uint64_t namespaces, mount_id_by_proc(own.get()));
  std::vector<UniqueFd> fds;
  for (const uint32_t number : numbers) {
    TRY_ASSIGN(UniqueFd fd, open_found_namespace(builder, number, namespaces));
    fds.push_back(std::move(fd));
  }
  TRY_ASSIGN(NamespaceFds container, NamespaceFds::take(isolation, fds));
  if (!fds.empty()) return fail(ErrorKind::corrupt, "the builder has found more than a container has");
  TRY(check_namespaces(container, owner));
  return container;
}

Result<UniqueFd> open_user_namespace(pid_t builder, uid_t owner) {
  TRY_ASSIGN(UniqueFd user, open_namespace(builder, "user"));
  TRY(check_user_namespace(user.get(), owner));
  return user;
}

Result<NamespaceFds> open_container_namespaces(pid_t builder, const Isolation& isolation, uid_t owner) {
  NamespaceFds container;
  TRY_ASSIGN(container.user, open_namespace(builder, "user"));
  TRY_ASSIGN(container.mount, open_namespace(builder, "mnt"));
  TRY_ASSIGN(container.cgroup, open_namespace(builder, "cgroup"));
  container.isolation = isolation;
  const std::array<std::pair<bool, const char*>, 4> others = {
      {{isolation.ipc, "ipc"}, {isolation.uts, "uts"}, {isolation.net, "net"}, {isolation.pid, "pid_for_children"}}};
  for (const auto& [own, name] : others) {
    if (!own) continue;
    TRY_ASSIGN(UniqueFd other, open_namespace(builder, name));
    container.others.push_back(std::move(other));
  }
  TRY(check_namespaces(container, owner));
  return container;
}

bool belongs_to(int proc_fd, uid_t uid) {
  return has_real_uid(status_of(proc_fd), uid);
}

void end_container(int user_namespace_fd, uid_t owner, const std::optional<IdRange>& range) {
  const auto kill = [&]() -> Result<void> {
    TRY_ASSIGN(const NamespaceId id, namespace_id(user_namespace_fd));
    const auto end = std::chrono::steady_clock::now() + kKillLimit;
    while (kill_members({id, owner, range}) > 0) {
      if (std::chrono::steady_clock::now() > end)
        return fail(ErrorKind::failure, "processes are still there after SIGKILL");
      std::this_thread::sleep_for(kKillPause);
    }
    return {};
  };
  if (const auto killed = kill(); !killed)
    syslog(LOG_ERR, "%s: %s", phrase(RootOperation::kill_container).data(), killed.error().message().c_str());
}

}  // namespace situla
