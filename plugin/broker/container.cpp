#include "plugin/broker/container.hpp"

#include <chrono>
#include <csignal>
#include <thread>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process.hpp"

namespace situla {
namespace {

constexpr std::chrono::milliseconds kKillLimit{2000};
constexpr std::chrono::milliseconds kKillPause{10};

/// SIGKILL to one process if, looked at through its pidfd's lifetime, it is the owner's and lives in the namespace.
bool kill_member(pid_t pid, const NamespaceId& members_of, uid_t owner) {
  // The pidfd first: what is read from /proc afterwards is of that process, or the signal below goes nowhere.
  const auto pidfd = open_pidfd(pid);
  if (!pidfd) return false;
  const auto proc = open_file("/proc/" + std::to_string(pid), O_PATH | O_DIRECTORY);
  if (!proc) return false;
  const auto user = open_file_at(proc->get(), "ns/user", O_RDONLY);
  const auto status = open_file_at(proc->get(), "status", O_RDONLY);
  if (!user || !status) return false;
  const auto id = namespace_id(user->get());
  if (!id || !(*id == members_of)) return false;
  const auto text = read_all(status->get(), 65536);
  if (!text) return false;
  const size_t line = text->find("\nUid:\t");
  // A zombie keeps its user namespace until its parent reaps it; there is nothing left in it to end.
  if (line == std::string::npos || text->find("\nState:\tZ") != std::string::npos) return false;
  const auto words = split_words(std::string_view(*text).substr(line + 6, 64));
  if (words.empty() || words[0] != std::to_string(owner)) return false;
  return signal_pidfd(pidfd->get(), SIGKILL).has_value();
}

size_t kill_members(const NamespaceId& id, uid_t owner) {
  size_t killed = 0;
  const auto names = list_directory("/proc");
  if (!names) return 0;
  for (const std::string& name : *names) {
    const auto pid = parse_unsigned(name);
    if (pid && kill_member(static_cast<pid_t>(*pid), id, owner)) ++killed;
  }
  return killed;
}

Result<void> check_owned_by(int namespace_fd, const NamespaceId& user, const char* name) {
  TRY_ASSIGN(const UniqueFd owner, owning_user_namespace(namespace_fd));
  TRY_ASSIGN(const NamespaceId owner_id, namespace_id(owner.get()));
  if (owner_id == user) return {};
  return fail(ErrorKind::denied,
              std::string("the builder's ") + name + " namespace does not belong to its user namespace");
}

}  // namespace

Result<UniqueFd> open_user_namespace(pid_t builder, uid_t owner) {
  TRY_ASSIGN(UniqueFd user, open_namespace(builder, "user"));
  TRY_ASSIGN(const UniqueFd ours, open_namespace(0, "user"));
  TRY_ASSIGN(const NamespaceId our_id, namespace_id(ours.get()));
  TRY_ASSIGN(const NamespaceId user_id, namespace_id(user.get()));
  TRY_ASSIGN(const uid_t creator, user_namespace_owner(user.get()));
  if (user_id == our_id || creator != owner)
    return fail(ErrorKind::denied, "the builder's user namespace is not one that the job user made");
  return user;
}

Result<ContainerNamespaces> open_container_namespaces(pid_t builder, uid_t owner) {
  ContainerNamespaces container;
  TRY_ASSIGN(container.user, open_user_namespace(builder, owner));
  TRY_ASSIGN(container.mount, open_namespace(builder, "mnt"));
  TRY_ASSIGN(container.cgroup, open_namespace(builder, "cgroup"));
  TRY_ASSIGN(const NamespaceId user_id, namespace_id(container.user.get()));
  TRY(check_owned_by(container.mount.get(), user_id, "mount"));
  TRY(check_owned_by(container.cgroup.get(), user_id, "cgroup"));
  return container;
}

Result<void> kill_container(int user_namespace_fd, uid_t owner) {
  TRY_ASSIGN(const NamespaceId id, namespace_id(user_namespace_fd));
  const auto end = std::chrono::steady_clock::now() + kKillLimit;
  while (kill_members(id, owner) > 0) {
    if (std::chrono::steady_clock::now() > end)
      return fail(ErrorKind::failure, "processes of the container are still there after SIGKILL");
    std::this_thread::sleep_for(kKillPause);
  }
  return {};
}

}  // namespace situla
