#include "hooks/run/isolation.hpp"

#include <optional>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/sys/file.hpp"
#include "common/sys/identity.hpp"
#include "common/sys/mount/mount_api.hpp"
#include "common/sys/mount/namespaces.hpp"
#include "common/sys/private_directory.hpp"
#include "hooks/containers/user_range.hpp"
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

/// A map of the groups that newgidmap(1) has written stays: there is no second one. All of its groups are the user's,
/// and without the uids of a range there is none (own_id_range()).
Result<void> map_without_range(const ContainerRequest& request) {
  const std::string groups = read_file("/proc/self/gid_map").value_or("");
  if (groups.empty()) return write_own_id_maps(request.inside_uid(), request.uid, request.inside_gid(), request.gid);
  TRY_ASSIGN(const UniqueFd map, open_file("/proc/self/uid_map", O_WRONLY));
  return write_all(map.get(), std::to_string(request.inside_uid()) + " " + std::to_string(request.uid) + " 1\n");
}

/// Those of the user's groups that he may map, found out when they are asked for, once.
class OwnGroups {
 public:
  explicit OwnGroups(const ContainerRequest& request) : request_(request) {}
  const std::vector<gid_t>& get() {
    if (!groups_) groups_ = groups_to_map(request_.inside_gid(), request_.uid, request_.gid);
    return *groups_;
  }

 private:
  const ContainerRequest& request_;
  std::optional<std::vector<gid_t>> groups_;
};

/// Helpers begin before there is a user namespace, and go on when there is one. False: there is no range, and no
/// namespace yet.
Result<bool> unshare_with_range(ContainerRequest& request, unsigned bits, OwnGroups& groups, LogSink& log) {
  auto helpers = RangeHelpers::begin_container(request, [&] { return groups.get(); });
  if (!helpers && request.range.exactly) return fail(std::move(helpers).error());
  if (!helpers) {
    log.debug("chown is pretended in the container: cannot " + helpers.error().message());
    return false;
  }
  TRY(unshare_namespaces(bits | kUserNs));
  if (const auto mapped = helpers->map(); !mapped) {
    if (request.range.exactly)
      return fail(Error(mapped.error())
                      .with_context("have the range of ids that the container began with")
                      .with_code(ErrorCode::namespaces));
    // Where nobody gains privileges (no_new_privs), these two do not either.
    log.debug("chown is pretended in the container: " + mapped.error().message());
    request.range.wanted = false;
    TRY(map_without_range(request));
    return true;
  }
  TRY(check_range(request));
  return true;
}

Result<void> unshare_and_map(ContainerRequest& request, LogSink& log) {
  const unsigned bits = namespace_bits(request.isolation) | kMountNs;
  if (request.real_root()) return unshare_namespaces(bits);
  OwnGroups own_groups(request);
  if (request.range.wanted) {
    TRY_ASSIGN(const bool done, unshare_with_range(request, bits, own_groups, log));
    if (done) return {};
    request.range.wanted = false;
  }
  auto groups = SubordinateGroups::begin(request.inside_gid(), request.gid, own_groups.get(), log);
  TRY(unshare_namespaces(bits | kUserNs));
  return write_own_id_maps(request.inside_uid(), request.uid, request.inside_gid(), request.gid,
                           [&] { return groups && groups->map(log); });
}

}  // namespace

Result<void> enter_own_namespaces(ContainerRequest& request, LogSink& log) {
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
