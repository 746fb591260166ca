#include "hooks/inject/edits/host_boundary.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "common/base/text.hpp"
#include "common/sys/mount_table.hpp"

namespace situla {

Result<void> HostBoundary::may_create_in(int directory_fd) {
  TRY_ASSIGN(const uint64_t mount, mount_id(directory_fd));
  if (allowed_.contains(mount)) return {};
  TRY_ASSIGN(const uint64_t top, mount_id(root_.fd()));
  if (mount != top) {
    TRY_ASSIGN(const std::vector<MountRecord> table, mount_table());
    const std::vector<MountRecord> inside = mounts_beneath(table, top);
    const auto record = std::find_if(table.begin(), table.end(), [&](const auto& item) { return item.id == mount; });
    const auto is_outside = [&](const MountRecord& item) {
      return item.id != top &&
             std::none_of(inside.begin(), inside.end(), [&](const auto& other) { return other.id == item.id; });
    };
    const auto outside = std::find_if(table.begin(), table.end(), [&](const MountRecord& item) {
      return record != table.end() && item.device == record->device && is_outside(item);
    });
    if (outside != table.end())
      return fail(Error(ErrorKind::denied,
                        "the directory is the host's, on what is mounted at " + printable(outside->path) + " there")
                      .with_hint("a link of the image or a mount leads there; nothing is made in directories of the "
                                 "host, so what is missing has to be made beforehand"));
  }
  allowed_.insert(mount);
  return {};
}

}  // namespace situla
