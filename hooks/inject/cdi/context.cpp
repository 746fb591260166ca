#include "hooks/inject/cdi/context.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace situla::cdi {

Result<HostNode> look_at_host(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return fail_errno(errno, "look at " + path);
  HostNode file;
  file.fifo = S_ISFIFO(status.st_mode);
  file.number = device_number(status);
  // The kernel asks the device cgroup last, and it alone answers EPERM (inode_permission()); nothing is opened. Slurm
  // takes reading and writing at once; MIG's nodes may be read only.
  file.denied = file.number && faccessat(AT_FDCWD, path.c_str(), R_OK, AT_EACCESS) != 0 && errno == EPERM;
  return file;
}

}  // namespace situla::cdi
