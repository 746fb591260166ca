#include "hooks/mount/source.hpp"

#include <algorithm>

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/fd_path.hpp"
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

Result<void> check_type(const MountSource& source, const MountStep& step) {
  const mode_t mode = source.status.st_mode;
  const auto is = [&](bool right, const char* wanted) -> Result<void> {
    if (right) return {};
    return fail(
        Error(ErrorKind::denied, "use " + step.source + ": it has to be " + wanted + " and is " + describe_type(mode))
            .with_code(ErrorCode::mount_source));
  };
  if (step.kind == StepKind::device) return is(source.is_device(), "a device");
  switch (step.source_type) {
    case SourceType::regular:
      return is(S_ISREG(mode), "a regular file");
    case SourceType::directory:
      return is(S_ISDIR(mode), "a directory");
    case SourceType::socket:
      return is(S_ISSOCK(mode), "a socket");
    case SourceType::any:
      break;
  }
  return {};
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

/// As faccessat(2) with AT_EMPTY_PATH, which needs Linux 5.8. Those of MIG are for reading only.
bool may_open(const MountSource& source) {
  constexpr mode_t kWritable = 0222;
  return access(fd_path(source.fd.get()).c_str(), (source.status.st_mode & kWritable) != 0 ? R_OK | W_OK : R_OK) == 0;
}

Result<void> check_library(const MountSource& source, const MountStep& step) {
  if (!S_ISREG(source.status.st_mode) || step.flags.no_exec || !is_library(step.source) ||
      (flags_of(source.fd.get()) & ST_NOEXEC) == 0)
    return {};
  return fail(Error(ErrorKind::denied, "use library " + step.source + ": " + mount_of(source.fd.get()) +
                                           " has the flag noexec, so no program could load it")
                  .with_code(ErrorCode::mount_source)
                  .with_hint("a user cannot take the flag away; mount that file system without noexec"));
}

Result<void> check_device(const MountSource& source, const MountStep& step, LogSink& log) {
  const DeviceNumber found = *device_number(source.status);
  if (step.number && *step.number != found)
    return fail(Error(ErrorKind::denied, "use " + step.source + ": it has to be device " + to_text(*step.number) +
                                             " and is " + to_text(found))
                    .with_code(ErrorCode::gpu_driver)
                    .with_hint("the node is left from another driver, or somebody made it by hand; make it again "
                               "(nvidia-modprobe -c 0 -u; udevadm trigger for those of udev)"));
  if ((flags_of(source.fd.get()) & ST_NODEV) != 0)
    return fail(Error(ErrorKind::denied, "use " + step.source + ": " + mount_of(source.fd.get()) +
                                             " has the flag nodev, so nobody could open the device")
                    .with_code(ErrorCode::mount_source)
                    .with_hint("a user cannot take the flag away; take the device from the host's /dev"));
  if (may_open(source)) return {};
  const int errnum = errno;
  log.warning(Error::from_errno(errnum, step.origin + ": open " + step.source)
                  .with_code(ErrorCode::gpu_request)
                  .with_hint(errnum == EPERM ? "the job's device cgroup does not allow it: was it allocated?"
                                             : "its owner, group and mode do not admit this user; of the job's groups "
                                               "those count that it had when it was submitted")
                  .text());
  return {};
}

/// O_PATH alone takes an automounter's trigger for the directory: flags such as "ro" would be that one's, and what is
/// mounted on it at the first access had none.
Result<UniqueFd> open_on_node(const std::string& path) {
  auto directory = open_file(path, O_PATH | O_DIRECTORY);
  if (directory || directory.error().errnum() != ENOTDIR) return directory;
  return open_file(path, O_PATH);
}

}  // namespace

std::optional<std::string> path_in_root(const std::string& path, const ApplyTarget& target) {
  const std::string& root = target.root_path;
  if (root.size() > 1 && path.starts_with(root + "/")) return path.substr(root.size());
  return root.size() > 1 && path == root ? std::optional<std::string>("/") : std::nullopt;
}

Result<MountSource> open_source(const MountStep& step, const ApplyTarget& target) {
  const std::string& path = step.source;
  const auto inside = path_in_root(path, target);
  auto fd = inside ? target.root.resolve(*inside) : open_on_node(path);
  if (!fd && !inside && !is_for_device(step) && fd.error().errnum() == ENOENT)
    fd.error()
        .with_code(ErrorCode::mount_source)
        .with_hint("the source of a mount must exist on the node; nofail skips a mount that is missing");
  if (!fd) return fail(std::move(fd).error().with_code(ErrorCode::mount_source));
  MountSource source;
  source.fd = std::move(*fd);
  if (fstat(source.fd.get(), &source.status) != 0) return fail_errno(errno, "inspect " + path);
  return source;
}

Result<ImagePath> image_path(const std::string& path) {
  for (size_t end = path.size(); end != 0 && end != std::string::npos; end = path.rfind('/', end - 1)) {
    const std::string file = path.substr(0, end);
    struct stat status {};
    if (stat(file.c_str(), &status) != 0) {
      if (errno == ENOTDIR) continue;
      return fail(Error::from_errno(errno, "open image " + file).with_code(ErrorCode::mount_source));
    }
    if (!S_ISDIR(status.st_mode)) return ImagePath{file, path.substr(std::min(end + 1, path.size()))};
    return fail(Error(ErrorKind::usage, "mount image " + path + ": " + file + " is a directory")
                    .with_code(ErrorCode::mount_source)
                    .with_hint("without the flag sqsh a directory is mounted as it is"));
  }
  return fail(Error(ErrorKind::not_found, "open image " + path + ": no such file").with_code(ErrorCode::mount_source));
}

Result<void> check_source(const MountSource& source, const MountStep& step, LogSink& log) {
  if (!is_for_device(step)) return {};
  TRY(check_type(source, step));
  return step.kind == StepKind::device ? check_device(source, step, log) : check_library(source, step);
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
