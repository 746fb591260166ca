// How does a read-only image become writable? An overlay in the user's namespace, where the upper file system can hold
// one.
#pragma once

#include <string>
#include <vector>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/sys/mount/mount_api.hpp"

namespace situla {

/// Directories by path; the paths may hold any character, they do not end up in an option string.
struct OverlayLayers {
  std::vector<std::string> lower;  ///< one or more, top first; all read-only
  std::string upper;               ///< on tmpfs, ext4, xfs, btrfs, ...; not NFS, Lustre, FUSE
  std::string work;                ///< empty, on the same file system as upper
  bool ephemeral =
      false;  ///< upper is thrown away afterwards: nothing is ever synced to disk ("volatile", where the kernel has it)
  std::string source = "overlay";  ///< what mountinfo and df show as its device; at most 255 bytes
};

/// Mounts on the directory behind target_fd. In a user namespace (Linux >= 5.11). ErrorKind::unsupported when upper's
/// file system, or the kernel, cannot do it: the caller extracts instead.
Result<void> mount_overlay(const OverlayLayers& layers, int target_fd, const MountFlags& flags, LogSink& log);

/// Whether some overlay that is mounted has this upper layer. Tells for sure only where the kernel protects it
/// (Linux 5.2); scratch: a directory on another file system, for a trial that fails in any case.
bool overlay_upper_in_use(const std::string& upper, const std::string& scratch);

/// What overlay_upper_works() would say, without a trial: true where kernel, file system and attributes are known to be
/// good enough. False means that nothing is known.
bool overlay_upper_known_good(const std::string& directory);

/// Whether a directory can hold the upper layer, found out by using one in a namespace of its own: files are changed,
/// removed and replaced. The error says why not. For a single-threaded process; leaves nothing in the directory.
Result<void> overlay_upper_works(const std::string& directory);

}  // namespace situla
