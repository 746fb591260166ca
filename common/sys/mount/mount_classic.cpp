#include "common/sys/mount/mount_classic.hpp"

#include <array>
#include <climits>

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "common/base/text.hpp"
#include "common/sys/fd_path.hpp"
#include "common/sys/file.hpp"
#include "common/sys/kernel.hpp"
#include "common/sys/mount_table.hpp"

namespace situla::classic {
namespace {

unsigned long bits(const MountFlags& flags) {
  unsigned long result = 0;
  for (const FlagBits& row : kFlagBits)
    if (flags.*row.flag) result |= row.mount;
  return result;
}

/// Of a file system, where fsconfig(2) takes words and mount(2) bits; 0: a word for the file system itself.
unsigned long superblock_bit(std::string_view key, std::string_view value) {
  constexpr std::array<std::pair<std::string_view, unsigned long>, 3> kBits = {
      {{"sync", MS_SYNCHRONOUS}, {"dirsync", MS_DIRSYNC}, {"lazytime", MS_LAZYTIME}}};
  for (const auto& [name, bit] : kBits)
    if (value.empty() && key == name) return bit;
  return 0;
}

/// The flags that a mount has now: a remount sets all of them at once, and leaving out a locked one is EPERM.
Result<unsigned long> current_bits(int fd) {
  struct statvfs status {};
  if (fstatvfs(fd, &status) != 0) return fail_errno(errno, "read the flags of a mount");
  unsigned long result = 0;
  if ((status.f_flag & ST_NODIRATIME) != 0) result = MS_NODIRATIME;
  for (const FlagBits& row : kFlagBits)
    if ((status.f_flag & row.status) != 0) result |= row.mount;
  if ((result & MS_NOATIME) != 0) return result;
  return result | ((status.f_flag & ST_RELATIME) != 0 ? MS_RELATIME : MS_STRICTATIME);
}

/// Kernels ignore flags of mount(2) that they do not know: a promise of protection must not be kept silently not.
Result<void> check_symfollow(int fd, const MountFlags& flags) {
  if (!flags.no_symfollow) return {};
  TRY_ASSIGN(const unsigned long now, current_bits(fd));
  if ((now & kernel::kMsNoSymfollow) != 0) return {};
  return fail(ErrorKind::unsupported, "add flags to a mount: nosymfollow needs Linux 5.10");
}

Result<void> remount(int fd, const MountFlags& flags) {
  TRY_ASSIGN(const unsigned long now, current_bits(fd));
  unsigned long wanted = now | bits(flags);
  if (flags.no_atime) wanted &= ~static_cast<unsigned long>(MS_RELATIME | MS_STRICTATIME);
  if (mount(nullptr, fd_path(fd).c_str(), nullptr, MS_REMOUNT | MS_BIND | wanted, nullptr) != 0)
    return fail_errno(errno, "add flags to a mount");
  return check_symfollow(fd, flags);
}

Result<std::string> path_of(int fd) {
  std::string path(PATH_MAX, '\0');
  const ssize_t size = readlink(fd_path(fd).c_str(), path.data(), path.size());
  if (size < 0)
    return fail(Error::from_errno(errno, "find the path of a mount point")
                    .with_code(ErrorCode::mount_failed)
                    .with_hint("is /proc mounted?"));
  path.resize(static_cast<size_t>(size));
  return path;
}

}  // namespace

Result<UniqueFd> open_mounted(int target_fd, int same_as) {
  TRY_ASSIGN(const std::string path, path_of(target_fd));
  UniqueFd found(open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!found) return fail_errno(errno, "open mount point " + path);
  TRY_ASSIGN(const uint64_t target_id, mount_id(target_fd));
  TRY_ASSIGN(const uint64_t found_id, mount_id(found.get()));
  bool right = target_id != found_id;
  if (right && same_as >= 0) {
    struct stat wanted {};
    struct stat got {};
    if (fstat(same_as, &wanted) != 0 || fstat(found.get(), &got) != 0) return fail_errno(errno, "inspect " + path);
    right = wanted.st_dev == got.st_dev && wanted.st_ino == got.st_ino;
  }
  if (!right) return fail(ErrorKind::failure, "open mount point " + path + ": it was moved while being mounted on");
  return found;
}

Result<void> mount_new(int target_fd, const std::string& type, const std::string& source,
                       const MountParameters& parameters, const MountFlags& flags) {
  std::vector<std::string> options;
  unsigned long wanted = bits(flags);
  for (const auto& [key, value] : parameters)
    if (const unsigned long bit = superblock_bit(key, value))
      wanted |= bit;
    else
      options.push_back(value.empty() ? key : key + "=" + value);
  const std::string data = join(options, ",");
  const char* from = source.empty() ? "none" : source.c_str();
  if (mount(from, fd_path(target_fd).c_str(), type.c_str(), wanted, data.c_str()) == 0) {
    if (!flags.no_symfollow) return {};
    TRY_ASSIGN(const UniqueFd mounted, open_mounted(target_fd, -1));
    auto checked = check_symfollow(mounted.get(), flags);
    if (!checked) (void)umount2(fd_path(mounted.get()).c_str(), MNT_DETACH);
    return checked;
  }
  Error error = Error::from_errno(errno, "mount " + type + (source.empty() || source == type ? "" : " from " + source));
  if (error.errnum() == ENODEV)
    error.with_code(ErrorCode::kernel)
        .with_hint("this kernel has no file system \"" + type + "\" (modprobe " + type + ")");
  if (error.errnum() == EINVAL)
    error.with_code(ErrorCode::mount_failed).with_hint("the kernel log (dmesg) may say why");
  return fail(std::move(error).with_code(ErrorCode::mount_failed));
}

Result<void> bind(int target_fd, int source_fd, bool recursive, const MountFlags& flags) {
  const unsigned long how = MS_BIND | (recursive ? static_cast<unsigned long>(MS_REC) : 0UL);
  const std::string source = fd_path(source_fd);
  const std::string target = fd_path(target_fd);
  if (mount(source.c_str(), target.c_str(), nullptr, how, nullptr) != 0) {
    Error error = Error::from_errno(errno, "bind a mount");
    if (error.errnum() == EINVAL && !recursive)
      error.with_code(ErrorCode::mount_failed)
          .with_hint(
              "mounts beneath it hide files that a non-recursive bind would show; in a user namespace use rbind");
    return fail(std::move(error));
  }
  if (bits(flags) == 0) return {};
  // MS_BIND ignores flags, so they are added afterwards; a bind that cannot be restricted must not stay.
  auto mounted = open_mounted(target_fd, source_fd);
  if (!mounted) return fail(std::move(mounted).error());
  auto restricted = add_flags(mounted->get(), flags, recursive);
  if (!restricted) (void)umount2(fd_path(mounted->get()).c_str(), MNT_DETACH);
  return restricted;
}

Result<void> add_flags(int fd, const MountFlags& flags, bool recursive) {
  TRY(remount(fd, flags));
  if (!recursive) return {};
  TRY_ASSIGN(const uint64_t top, mount_id(fd));
  TRY_ASSIGN(const std::vector<MountRecord> table, mount_table());
  for (const MountRecord& mount : mounts_beneath(table, top)) {
    const UniqueFd found(open(mount.path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    // Mounts that are covered by others cannot be reached by path, neither by us nor by the container.
    if (!found) continue;
    TRY_ASSIGN(const uint64_t id, mount_id(found.get()));
    if (id != mount.id) continue;
    TRY_CONTEXT(mount.path, remount(found.get(), flags));
  }
  return {};
}

}  // namespace situla::classic
