#include "hooks/inject/edits/host_boundary.hpp"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/base/text.hpp"
#include "common/sys/mount_table.hpp"

namespace situla {
namespace {

using Table = std::vector<MountRecord>;

/// Where the file system of this mount is mounted outside of the tree of mounts at `top`; nullptr: nowhere.
const MountRecord* found_outside(const Table& table, uint64_t mount, uint64_t top) {
  std::set<uint64_t> inside{top};
  for (const MountRecord& item : mounts_beneath(table, top)) inside.insert(item.id);
  const auto record = std::find_if(table.begin(), table.end(), [&](const auto& item) { return item.id == mount; });
  if (record == table.end()) return nullptr;
  const auto outside = std::find_if(table.begin(), table.end(), [&](const MountRecord& item) {
    return item.device == record->device && !inside.contains(item.id);
  });
  return outside == table.end() ? nullptr : &*outside;
}

/// What is known already. The kernel takes long to write its table, and longer with every library that was mounted.
struct Known {
  std::set<uint64_t> own;
  Table table;
};

Result<void> check(int directory_fd, uint64_t top, Known& known) {
  TRY_ASSIGN(const uint64_t mount, mount_id(directory_fd));
  if (mount == top || known.own.contains(mount)) return {};
  if (std::none_of(known.table.begin(), known.table.end(), [&](const auto& item) { return item.id == mount; })) {
    TRY_ASSIGN(known.table, mount_table());
  }
  const MountRecord* outside = found_outside(known.table, mount, top);
  if (outside != nullptr)
    return fail(
        Error(ErrorKind::denied,
              "the directory is the host's, on what is mounted at " + printable(outside->path) + " there")
            .with_hint("a link of the image or a mount leads there; nothing is made in directories of the host, "
                       "so what is missing has to be made beforehand"));
  known.own.insert(mount);
  return {};
}

}  // namespace

Result<RootDir> spare_host_directories(const RootDir& root) {
  TRY_ASSIGN(const uint64_t top, mount_id(root.fd()));
  return root.guarded([top, known = std::make_shared<Known>()](int fd) { return check(fd, top, *known); });
}

}  // namespace situla
