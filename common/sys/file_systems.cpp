#include "common/sys/file_systems.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include "common/sys/file.hpp"
#include "common/sys/mount_table.hpp"

namespace situla {
namespace {

using Kind = FileSystemKind;

constexpr std::array kFileSystems = {
    FileSystem{0xef53, "ext4", Kind::local},        FileSystem{0x58465342, "xfs", Kind::local},
    FileSystem{0x9123683e, "btrfs", Kind::local},   FileSystem{0x2fc12fc1, "zfs", Kind::local},
    FileSystem{0xf2f52010, "f2fs", Kind::local},    FileSystem{0xca451a4e, "bcachefs", Kind::local},
    FileSystem{0x01021994, "tmpfs", Kind::memory},  FileSystem{0x858458f6, "ramfs", Kind::memory},
    FileSystem{0x6969, "nfs", Kind::network},       FileSystem{0x0bd00bd0, "lustre", Kind::network},
    FileSystem{0x47504653, "gpfs", Kind::network},  FileSystem{0x19830326, "beegfs", Kind::network},
    FileSystem{0x00c36400, "ceph", Kind::network},  FileSystem{0x20030528, "orangefs", Kind::network},
    FileSystem{0xaad7aaea, "panfs", Kind::network}, FileSystem{0x517b, "smb", Kind::network},
    FileSystem{0xfe534d42, "smb2", Kind::network},  FileSystem{0xff534d42, "cifs", Kind::network},
    FileSystem{0x5346414f, "afs", Kind::network},   FileSystem{0x65735546, "fuse", Kind::network},
    FileSystem{0x01021997, "9p", Kind::network},    FileSystem{0x7461636f, "ocfs2", Kind::network},
    FileSystem{0x01161970, "gfs2", Kind::network},  FileSystem{0x794c7630, "overlay", Kind::layers},
};

/// Types of file systems of several nodes whose numbers are not in the table.
constexpr std::array<std::string_view, 2> kOtherShared = {"wekafs", "dvs"};

const FileSystem* known(const struct statfs& status) {
  // The type is a signed or an unsigned long, by architecture; all of these have 32 bits.
  const auto magic = static_cast<int64_t>(static_cast<uint32_t>(status.f_type));
  const auto* found = std::find_if(kFileSystems.begin(), kFileSystems.end(),
                                   [&](const FileSystem& known) { return known.magic == magic; });
  return found == kFileSystems.end() ? nullptr : found;
}

/// NFS 3 refuses leases by itself.
constexpr std::array<std::string_view, 6> kServersTakeBack = {"nfs", "nfs4", "cifs", "smb", "smb2", "smb3"};

bool takes_back(std::string_view type) {
  return std::find(kServersTakeBack.begin(), kServersTakeBack.end(), type) != kServersTakeBack.end();
}

}  // namespace

const FileSystem* file_system_of(const std::string& path) {
  struct statfs status {};
  return statfs(path.c_str(), &status) == 0 ? known(status) : nullptr;
}

std::string existing(const std::string& path) {
  std::filesystem::path place(path);
  std::error_code error;
  while (!std::filesystem::exists(place, error) && place.has_relative_path()) place = place.parent_path();
  return place.string();
}

MountedFrom mounted_from(const std::string& path) {
  const std::string place = existing(path);
  MountedFrom found;
  if (const FileSystem* system = file_system_of(place)) {
    found.type = system->name;
    found.kind = system->kind;
  }
  const auto fd = open_file(place, O_PATH);
  const auto id = fd ? mount_id(fd->get()) : Result<uint64_t>(0);
  const auto table = mount_table();
  if (!id || !table) return found;
  for (const MountRecord& mount : *table) {
    if (mount.id != *id) continue;
    found.type = mount.type;
    found.source = mount.source;
    // FUSE over a block device of this node.
    if (mount.type == "fuseblk") found.kind = Kind::local;
    if (std::find(kOtherShared.begin(), kOtherShared.end(), mount.type) != kOtherShared.end())
      found.kind = Kind::network;
  }
  return found;
}

bool share_file_system(const std::string& one, const std::string& other) {
  struct stat first {
  }, second{};
  return stat(existing(one).c_str(), &first) == 0 && stat(existing(other).c_str(), &second) == 0 &&
         first.st_dev == second.st_dev;
}

bool leases_reach_all_nodes(int fd) {
  struct statfs status {};
  if (fstatfs(fd, &status) != 0) return false;
  const FileSystem* system = known(status);
  return system == nullptr || system->kind != Kind::network || takes_back(system->name);
}

bool is_server_asked_for_leases(int fd) {
  struct statfs status {};
  if (fstatfs(fd, &status) != 0) return false;
  const FileSystem* system = known(status);
  return system != nullptr && takes_back(system->name);
}

bool leases_reach_all_nodes(const MountedFrom& place) {
  return place.kind != Kind::network || takes_back(place.type);
}

}  // namespace situla
