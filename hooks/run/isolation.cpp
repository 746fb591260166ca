#include "hooks/run/isolation.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/sys/file.hpp"
#include "common/sys/identity.hpp"
#include "common/sys/mount/mount_api.hpp"
#include "common/sys/mount/namespaces.hpp"
#include "common/sys/private_directory.hpp"
#include "hooks/run/subordinate_groups.hpp"

namespace situla {
namespace {

/// The descriptor is from the old mount namespace, its path leads to the same directory in the new one.
Result<UniqueFd> same_directory(const std::string& path, const UniqueFd& before) {
  TRY_ASSIGN(UniqueFd now, open_file(path, O_PATH | O_DIRECTORY | O_NOFOLLOW));
  struct stat old_status {
  }, new_status{};
  if (fstat(before.get(), &old_status) != 0 || fstat(now.get(), &new_status) != 0)
    return fail_errno(errno, "inspect " + path);
  if (old_status.st_ino != new_status.st_ino || old_status.st_dev != new_status.st_dev)
    return fail(ErrorKind::denied, "use " + path + ": it was exchanged meanwhile");
  return now;
}

}  // namespace

unsigned namespace_bits(const Isolation& isolation) {
  unsigned bits = 0;
  if (isolation.net) bits |= kNetNs;
  if (isolation.ipc) bits |= kIpcNs;
  if (isolation.uts) bits |= kUtsNs;
  return bits;
}

namespace {

/// Before there is a user namespace the helper for the groups begins, and in it goes on.
Result<void> unshare_and_map(const ContainerRequest& request, LogSink& log) {
  const unsigned bits = namespace_bits(request.isolation) | kMountNs;
  if (request.real_root()) return unshare_namespaces(bits);
  auto groups = SubordinateGroups::begin(request.inside_gid(), request.uid, request.gid, log);
  TRY(unshare_namespaces(bits | kUserNs));
  return write_own_id_maps(request.inside_uid(), request.uid, request.inside_gid(), request.gid,
                           [&] { return groups && groups->map(log); });
}

}  // namespace

Result<void> enter_own_namespaces(const ContainerRequest& request, LogSink& log) {
  // Covered by a tmpfs of our own namespace as soon as there is one.
  TRY_ASSIGN(PrivateDirectory made, PrivateDirectory::open_or_make(request.stage(), "ENROOT_RUNTIME_PATH"));
  const UniqueFd stage = std::move(made).take_fd();
  TRY(unshare_and_map(request, log));
  if (request.isolation.net) TRY(bring_loopback_up());
  // What is mounted on the node later still appears below bind mounts of the container; nothing goes the other way.
  TRY(set_propagation("/", Propagation::slave, true));
  TRY_ASSIGN(const UniqueFd point, same_directory(request.stage(), stage));
  return mount_new_at(point.get(), "tmpfs", "tmpfs", {{"mode", "700"}}, {.no_suid = true, .no_dev = true},
                      request.stage());
}

Result<void> restrict_privileges(bool is_root) {
  TRY(set_no_new_privileges());
  if (!is_root) TRY(drop_bounding_set());
  return {};
}

}  // namespace situla
