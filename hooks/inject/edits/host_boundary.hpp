// Which directories beneath a container's root are really the host's, so that nothing may be made in them? A link of
// the image may lead to one (/usr/lib64 -> /dev/shm), and so may a mount of the site.
#pragma once

#include <cstdint>
#include <set>

#include "common/base/result.hpp"
#include "common/sys/root_dir.hpp"

namespace situla {

class HostBoundary {
 public:
  explicit HostBoundary(const RootDir& root) : root_(root) {}
  /// An error (ErrorKind::denied) when the directory's file system is mounted outside of the root, too, unless it is
  /// the one that holds the root itself.
  Result<void> may_create_in(int directory_fd);

 private:
  const RootDir& root_;
  std::set<uint64_t> allowed_;  ///< mounts that were found to be the container's own
};

}  // namespace situla
