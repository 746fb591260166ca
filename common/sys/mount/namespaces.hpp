// Which namespaces does a process live in, and how are they made, mapped and joined?
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/sys/mount/id_maps.hpp"

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
/// In which a user namespace was made (ioctl NS_GET_PARENT). ErrorKind::denied: in none that the caller's contains.
Result<UniqueFd> parent_user_namespace(int fd);
/// Uid that created a user namespace (ioctl NS_GET_OWNER_UID).
Result<uid_t> user_namespace_owner(int fd);

/// Brings the loopback interface of the current network namespace up; it has 127.0.0.1 and ::1 then.
Result<void> bring_loopback_up();
/// A user namespace with those maps, for id-mapped mounts. Needs CAP_SETUID/SETGID. Made by a short-lived child;
/// nothing but the descriptor remains.
Result<UniqueFd> make_mapping_namespace(const IdMaps& maps);
/// In which id 0 is `uid`/`gid` of the caller's namespace.
Result<UniqueFd> make_mapping_namespace(uid_t uid, gid_t gid);

}  // namespace situla
