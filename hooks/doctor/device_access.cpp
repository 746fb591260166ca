#include "hooks/doctor/device_access.hpp"

#include <cerrno>
#include <cstring>

#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/sys/fd_path.hpp"

namespace situla::doctor {

NodeAccess node_access(const RootDir& devices, const std::string& path) {
  const Result<UniqueFd> fd = devices.resolve(path);
  if (!fd) return {false, "it does not exist", "", false};
  NodeAccess result;
  const std::string name = fd_path(fd->get());
  result.mine = access(name.c_str(), R_OK | W_OK) == 0;
  const int errnum = result.mine ? 0 : errno;
  if (!result.mine) result.reason = strerror(errnum);
  result.restricted = errnum == EPERM;
  struct stat status {};
  if (fstat(fd->get(), &status) != 0 || (status.st_mode & 0006U) == 0006U) return result;
  const group* entry = getgrgid(status.st_gid);
  result.only_for = (status.st_mode & 0060U) != 0060U
                        ? "its owner"
                        : "group " + (entry == nullptr ? std::to_string(status.st_gid) : std::string(entry->gr_name));
  return result;
}

}  // namespace situla::doctor
