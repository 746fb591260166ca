#include "hooks/run/isolation.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/sys/file.hpp"
#include "common/sys/mount_api.hpp"
#include "common/sys/namespaces.hpp"
#include "common/sys/network.hpp"

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

Isolation wanted_isolation(const Isolation& options, const EnrootConfig& config) {
  return {options.pid || config.flag("ENROOT_UNSHARE_PID"), options.net || config.flag("ENROOT_UNSHARE_NET"),
          options.ipc || config.flag("ENROOT_UNSHARE_IPC"), options.uts || config.flag("ENROOT_UNSHARE_UTS")};
}

bool is_superuser(const EnrootConfig& config) {
  return geteuid() == 0 && config.flag("ENROOT_ALLOW_SUPERUSER");
}

Result<void> enter_namespaces(const NamespaceRequest& request, const UniqueFd& stage) {
  TRY(unshare_namespaces(namespace_bits(request.isolation) | kMountNs | (request.user ? kUserNs : 0U)));
  if (request.user)
    TRY(write_own_id_maps(request.remap_root ? 0 : request.uid, request.uid, request.remap_root ? 0 : request.gid,
                          request.gid));
  if (request.isolation.net) TRY(bring_loopback_up());
  // What is mounted on the node later still appears below bind mounts of the container; nothing goes the other way.
  TRY(set_propagation("/", Propagation::slave, true));
  TRY_ASSIGN(const UniqueFd point, same_directory(request.stage, stage));
  return mount_new_at(point.get(), "tmpfs", "tmpfs", {{"mode", "700"}}, {.no_suid = true, .no_dev = true},
                      request.stage);
}

}  // namespace situla
