// What can be said of a mount, whichever calls make it?
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace situla {

/// Per-mount attributes that are ADDED (mount_setattr(2), AT_RECURSIVE where asked); nothing is ever cleared, so locked
/// flags of outer mounts do not matter. On the classic path the current flags (statvfs) are OR-ed in.
struct MountFlags {
  bool read_only = false, no_suid = false, no_dev = false, no_exec = false, no_symfollow = false, no_atime = false;
  friend bool operator==(const MountFlags&, const MountFlags&) = default;
};

/// key/value options for fsconfig(2); an empty value sets a flag.
using MountParameters = std::vector<std::pair<std::string, std::string>>;

}  // namespace situla
