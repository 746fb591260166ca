// Which mounts does this process see, and on which of them is an open file? (proc_pid_mountinfo(5))
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"

namespace situla {

struct MountRecord {
  uint64_t id = 0, parent = 0;
  std::string device;   ///< "8:1", of the file system; binds of one file system share it
  std::string root;     ///< which of the file system's directories is mounted; "/../x": one that is out of sight
  std::string path;     ///< where it is, as the process sees it
  std::string type;     ///< "ext4"
  std::string source;   ///< "/dev/sda1", or what the mounter called it
  std::string options;  ///< of the file system: "rw,cpu,cpuacct"
};

/// Of a mountinfo file's text, in the kernel's order; lines that are none are left out.
std::vector<MountRecord> parse_mount_table(std::string_view text);
/// All mounts of this mount namespace.
Result<std::vector<MountRecord>> mount_table();
/// Those beneath the mount with this id, parents first; without it.
std::vector<MountRecord> mounts_beneath(const std::vector<MountRecord>& table, uint64_t top);
/// The mount that an open file is on. A mount keeps its id when it is attached or moved.
Result<uint64_t> mount_id(int fd);
/// The slow way, from /proc/self/fdinfo, which surely asks no file system: for descriptors of a user's files.
Result<uint64_t> mount_id_by_proc(int fd);

}  // namespace situla
