// Which namespaces does a process live in, and how are they made, mapped and joined?
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"

namespace situla {

/// Bits for unshare_namespaces(); any set of them.
enum NamespaceBits : unsigned {
  kUserNs = 1U << 0U,
  kMountNs = 1U << 1U,
  kPidNs = 1U << 2U,
  kIpcNs = 1U << 3U,
  kUtsNs = 1U << 4U,
  kNetNs = 1U << 5U,
  kCgroupNs = 1U << 6U,
};

/// unshare(2); the error's hint explains the sysctl or AppArmor setting that usually forbids user namespaces.
Result<void> unshare_namespaces(unsigned bits);
/// setns(2) into the namespace behind fd; `name` is for the error ("user", "mnt", ...).
Result<void> join_namespace(int fd, std::string_view name);
/// chroot(2) into an open directory, which becomes the working directory, too. Needs CAP_SYS_CHROOT in the user
/// namespace.
Result<void> change_root(int root_fd);
/// Opens /proc/<pid>/ns/<name>; pid 0 = self.
Result<UniqueFd> open_namespace(pid_t pid, const char* name);
/// (st_dev, st_ino) identity of a namespace file.
struct NamespaceId {
  uint64_t device = 0, inode = 0;
  friend bool operator==(const NamespaceId&, const NamespaceId&) = default;
};
Result<NamespaceId> namespace_id(int fd);
/// The user namespace that owns the namespace behind fd (ioctl NS_GET_USERNS).
Result<UniqueFd> owning_user_namespace(int fd);
/// Uid that created a user namespace (ioctl NS_GET_OWNER_UID).
Result<uid_t> user_namespace_owner(int fd);

/// The text of a gid_map (user_namespaces(7)): rows "inside outside count".
struct GroupMap {
  std::string text;
  size_t left_out = 0;  ///< groups for which the kernel has no room: 340 rows, and less than 4096 bytes
};
/// `inside` stands for `outside`, the user's own group, and each of his `supplementary` groups for itself, the first
/// ones first where they are too many. Not group 0, and none that has the number `inside`: that is taken. None at all
/// where `outside` is not one of them: with CAP_SETGID in his namespace he can take any group of the map in place of
/// his own, would leave his own like that, and files that it may not read (mode 0604) would be his.
GroupMap map_groups(gid_t inside, gid_t outside, const std::vector<gid_t>& supplementary = {});

/// Writes the map of one uid, that of the groups, and setgroups=deny for a process, through its /proc directory
/// descriptor. More than one group needs CAP_SETGID in the parent's user namespace.
Result<void> write_id_maps(int proc_pid_fd, uid_t inside_uid, uid_t outside_uid, const GroupMap& groups);
/// The same with a single group for the calling process itself, which has just unshared its user namespace.
Result<void> write_own_id_maps(uid_t inside_uid, uid_t outside_uid, gid_t inside_gid, gid_t outside_gid);
/// The same, but `map_groups` has the map of the groups written by somebody who may (newgidmap(1)), and says whether it
/// was. When it is asked setgroups(2) is denied already.
Result<void> write_own_id_maps(uid_t inside_uid, uid_t outside_uid, gid_t inside_gid, gid_t outside_gid,
                               const std::function<bool()>& map_groups);
/// Brings the loopback interface of the current network namespace up; it has 127.0.0.1 and ::1 then.
Result<void> bring_loopback_up();
/// A user namespace in which id 0 is `uid`/`gid` of the caller's namespace, for id-mapped mounts. Needs
/// CAP_SETUID/SETGID. Made by a short-lived child; nothing but the descriptor remains.
Result<UniqueFd> make_mapping_namespace(uid_t uid, gid_t gid);

}  // namespace situla
