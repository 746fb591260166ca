#include "hooks/inject/edits/place.hpp"

#include <array>
#include <cstdio>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>

#include "common/sys/mount_table.hpp"

namespace situla {
namespace {

constexpr mode_t kDirectoryMode = 0755;
constexpr mode_t kFileMode = 0644;
/// More than any cover holds; memory is taken only for what is there.
constexpr const char* kCoverSize = "16m";

Error explain(Error error) {
  switch (error.errnum()) {
    case EROFS:
      error.with_hint(
          "nothing is there to mount on, and the container's root is read-only: put an empty file or "
          "directory of that name into the image, or let the container be writable");
      break;
    case ENOTDIR:
    case EISDIR:
      error.with_hint("a directory can only be mounted on a directory, a file only on a file");
      break;
    case ELOOP:
      error.with_hint("links of the image lead in a circle, or there are more than 40 of them");
      break;
    default:
      break;
  }
  return error;
}

/// What the container has there is as good as the host's: nothing has to be mounted.
Result<bool> is_there(int target_fd, const HostFile& file, const MountFlags& flags) {
  struct stat status {};
  if (fstat(target_fd, &status) != 0) return fail_errno(errno, "inspect the target");
  if (file.is_device())
    return (status.st_mode & S_IFMT) == (file.status.st_mode & S_IFMT) && status.st_rdev == file.status.st_rdev &&
           !has_flags(target_fd, {.no_dev = true});
  return status.st_dev == file.status.st_dev && status.st_ino == file.status.st_ino && has_flags(target_fd, flags);
}

}  // namespace

/// Where /proc or /sys is a link of the image, what looks like the kernel's files is something else.
Result<void> Place::check_way() const {
  if (!path_.starts_with('/')) return fail(ErrorKind::usage, "mount on " + path_ + ": not an absolute path");
  for (const std::string top : {"/proc", "/sys"}) {
    if (path_ != top && !path_.starts_with(top + "/")) continue;
    TRY_ASSIGN(const UniqueFd fd, root_.open_at(top, O_PATH | O_NOFOLLOW));
    struct stat status {};
    if (fstat(fd.get(), &status) != 0) return fail_errno(errno, "inspect " + top);
    if (S_ISLNK(status.st_mode))
      return fail(ErrorKind::denied, "mount on " + path_ + ": " + top + " is a link in this image");
  }
  return {};
}

Result<UniqueFd> Place::make(bool directory) const {
  TRY(check_way());
  auto made = directory ? root_.make_directories(path_, kDirectoryMode) : root_.make_file(path_, kFileMode);
  if (!made) return fail(explain(std::move(made).error()));
  struct stat status {};
  if (fstat(made->get(), &status) != 0) return fail_errno(errno, "inspect " + path_);
  struct stat root {};
  if (fstat(root_.fd(), &root) != 0) return fail_errno(errno, "inspect the root");
  if (status.st_dev == root.st_dev && status.st_ino == root.st_ino)
    return fail(ErrorKind::denied,
                "mount on " + path_ + ": it is the container's root, which would be hidden as a whole");
  if (S_ISDIR(status.st_mode) != directory)
    return fail(explain(Error::from_errno(directory ? ENOTDIR : EISDIR, "mount on " + path_)));
  return made;
}

Result<void> Place::verify(const UniqueFd& mounted) const {
  TRY_ASSIGN(const uint64_t wanted, mount_id(mounted.get()));
  const auto found = root_.resolve(path_);
  if (found) {
    TRY_ASSIGN(const uint64_t there, mount_id(found->get()));
    if (there == wanted) return {};
  }
  (void)detach_mount(mounted.get());
  return fail(Error(ErrorKind::failure, "find " + path_ + " again after mounting on it: it is another file now")
                  .with_hint("another process renames files in the container's root at this moment"));
}

Result<void> Place::bind(const HostFile& file, bool recursive, const MountFlags& flags) const {
  MountFlags used = flags;
  if (file.is_device()) used.no_dev = false;
  TRY_ASSIGN(const UniqueFd target, make(file.is_directory()));
  TRY_ASSIGN(const bool there, is_there(target.get(), file, used));
  if (there) return {};
  auto mounted = bind_and_open(target.get(), file.fd.get(), recursive, used, path_);
  // A tree with mounts in it can only be bound whole in a user namespace, or hidden files would show.
  if (!mounted && !recursive && mounted.error().errnum() == EINVAL)
    mounted = bind_and_open(target.get(), file.fd.get(), true, used, path_);
  if (!mounted) return fail(explain(std::move(mounted).error()));
  return verify(*mounted);
}

Result<UniqueFd> Place::cover(mode_t mode, const MountFlags& flags) const {
  TRY_ASSIGN(const UniqueFd target, make(true));
  std::array<char, 8> octal{};
  (void)std::snprintf(octal.data(), octal.size(), "%04o", static_cast<unsigned>(mode & 07777U));
  TRY_ASSIGN(UniqueFd mounted, mount_new_and_open(target.get(), "tmpfs", "tmpfs",
                                                  {{"mode", octal.data()}, {"size", kCoverSize}}, flags, path_));
  TRY(verify(mounted));
  return mounted;
}

}  // namespace situla
