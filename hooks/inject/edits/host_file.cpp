#include "hooks/inject/edits/host_file.hpp"

#include <algorithm>

#include <fcntl.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/mount_table.hpp"

namespace situla {
namespace {

std::string describe_type(mode_t mode) {
  switch (mode & static_cast<mode_t>(S_IFMT)) {
    case S_IFREG:
      return "a regular file";
    case S_IFDIR:
      return "a directory";
    case S_IFSOCK:
      return "a socket";
    case S_IFCHR:
      return "a character device";
    case S_IFBLK:
      return "a block device";
    case S_IFIFO:
      return "a pipe";
    default:
      return "of an unknown type";
  }
}

bool is_of_type(mode_t mode, SourceType type) {
  switch (type) {
    case SourceType::regular:
      return S_ISREG(mode);
    case SourceType::directory:
      return S_ISDIR(mode);
    case SourceType::socket:
      return S_ISSOCK(mode);
    case SourceType::any:
      return true;
  }
  return false;
}

std::string describe_type(SourceType type) {
  switch (type) {
    case SourceType::regular:
      return "a regular file";
    case SourceType::directory:
      return "a directory";
    case SourceType::socket:
      return "a socket";
    case SourceType::any:
      return "anything";
  }
  return "";
}

std::string number_text(char type, unsigned major_number, unsigned minor_number) {
  return std::string(1, type) + " " + std::to_string(major_number) + ":" + std::to_string(minor_number);
}

unsigned long flags_of(int fd) {
  struct statvfs status {};
  return fstatvfs(fd, &status) == 0 ? status.f_flag : 0;
}

/// "the mount at /data", as well as it can be told.
std::string mount_of(int fd) {
  const auto id = mount_id(fd);
  const auto table = mount_table();
  if (id && table)
    for (const MountRecord& mount : *table)
      if (mount.id == *id) return "the mount at " + printable(mount.path);
  return "its mount";
}

bool is_library(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  return name.ends_with(".so") || name.find(".so.") != std::string::npos;
}

/// As faccessat(2) with AT_EMPTY_PATH, which needs Linux 5.8.
bool may_open(int fd) {
  return access(("/proc/self/fd/" + std::to_string(fd)).c_str(), R_OK | W_OK) == 0;
}

}  // namespace

Result<HostFile> open_host_file(const std::string& path, const EditTarget& target) {
  if (!path.starts_with('/')) return fail(ErrorKind::usage, "open " + path + ": not an absolute path");
  const std::string& root = target.root_path;
  const bool inside = root.size() > 1 && (path == root || path.starts_with(root + "/"));
  auto fd = inside ? target.root.resolve(path == root ? "/" : std::string_view(path).substr(root.size()))
                   : open_file(path, O_PATH);
  if (!fd) return fail(std::move(fd).error());
  HostFile file;
  file.fd = std::move(*fd);
  if (fstat(file.fd.get(), &file.status) != 0) return fail_errno(errno, "inspect " + path);
  return file;
}

Result<void> check_source(const HostFile& file, const MountEdit& edit) {
  if (!is_of_type(file.status.st_mode, edit.type))
    return fail(ErrorKind::denied, "use " + edit.source + ": it has to be " + describe_type(edit.type) + " and is " +
                                       describe_type(file.status.st_mode));
  if (S_ISREG(file.status.st_mode) && !edit.flags.no_exec && is_library(edit.source) &&
      (flags_of(file.fd.get()) & ST_NOEXEC) != 0)
    return fail(Error(ErrorKind::denied, "use library " + edit.source + ": " + mount_of(file.fd.get()) +
                                             " has the flag noexec, so no program could load it")
                    .with_hint("a user cannot take the flag away; mount that file system without noexec"));
  return {};
}

Result<void> check_device(const HostFile& file, const DeviceEdit& edit, LogSink& log) {
  if (!file.is_device())
    return fail(ErrorKind::denied,
                "use " + edit.source + ": it has to be a device and is " + describe_type(file.status.st_mode));
  const char type = S_ISCHR(file.status.st_mode) ? 'c' : 'b';
  const DeviceNumber found{type, major(file.status.st_rdev), minor(file.status.st_rdev)};
  if (edit.number && *edit.number != found)
    return fail(Error(ErrorKind::denied, "use " + edit.source + ": it has to be device " +
                                             number_text(edit.number->type, edit.number->major, edit.number->minor) +
                                             " and is " + number_text(found.type, found.major, found.minor))
                    .with_hint("the node is left from another driver, or somebody made it by hand; make it again "
                               "(nvidia-modprobe -c 0 -u)"));
  if ((flags_of(file.fd.get()) & ST_NODEV) != 0)
    return fail(Error(ErrorKind::denied, "use " + edit.source + ": " + mount_of(file.fd.get()) +
                                             " has the flag nodev, so nobody could open the device")
                    .with_hint("a user cannot take the flag away; take the device from the host's /dev"));
  if (may_open(file.fd.get())) return {};
  const int errnum = errno;
  log.warning(Error::from_errno(errnum, edit.origin + ": open " + edit.source)
                  .with_hint(errnum == EPERM ? "the job's device cgroup does not allow it: was it allocated?"
                                             : "its owner, group and mode do not admit this user; of the job's groups "
                                               "those count that it had when it was submitted")
                  .text());
  return {};
}

bool has_flags(int fd, const MountFlags& flags) {
  const unsigned long set = flags_of(fd);
  constexpr unsigned long kNoSymfollow = 0x2000;  // ST_NOSYMFOLLOW, which the C library's headers lack
  const auto holds = [&](bool wanted, unsigned long bit) { return !wanted || (set & bit) != 0; };
  return holds(flags.read_only, ST_RDONLY) && holds(flags.no_suid, ST_NOSUID) && holds(flags.no_dev, ST_NODEV) &&
         holds(flags.no_exec, ST_NOEXEC) && holds(flags.no_symfollow, kNoSymfollow) &&
         holds(flags.no_atime, ST_NOATIME);
}

}  // namespace situla
