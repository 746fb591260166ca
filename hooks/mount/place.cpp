#include "hooks/mount/place.hpp"

#include <algorithm>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/mount/mount_api.hpp"
#include "common/sys/mount_table.hpp"

namespace situla {
namespace {

constexpr mode_t kDirectoryMode = 0755;
constexpr mode_t kFileMode = 0644;
/// More than any cover holds that does not say its size; memory is taken only for what is there.
constexpr const char* kCoverSize = "16m";
/// As nvidia-container-cli has them; read-only keeps a driver library from changing the node's mode (GPU.md 1.7). Never
/// nodev.
constexpr MountFlags kDeviceFlags{.read_only = true, .no_suid = true, .no_exec = true};

Error explain(Error error, const MountStep& step) {
  switch (error.errnum()) {
    case ENOENT:
      if (!is_for_device(step))
        error.with_code(ErrorCode::mount_failed)
            .with_hint(step.create == CreateTarget::no ? "nothing is there to mount on; x-create=auto makes it"
                                                       : "a directory on the way to the target is a dangling link");
      break;
    case EROFS:
      error.with_code(ErrorCode::mount_failed)
          .with_hint(
              "nothing is there to mount on, and it cannot be made, as the container's root is read-only there: put an "
              "empty file or directory of that name into the image, or let the container be writable");
      break;
    case ENOTDIR:
    case EISDIR:
      error.with_code(ErrorCode::mount_failed)
          .with_hint("a directory can only be mounted on a directory, a file only on a file");
      break;
    case ELOOP:
      error.with_code(ErrorCode::mount_failed)
          .with_hint("links of the image lead in a circle, or there are more than 40 of them");
      break;
    default:
      break;
  }
  return error;
}

/// Where /proc or /sys is a link of the image, what looks like the kernel's files is something else.
Result<void> check_way(const std::string& path, const RootDir& root) {
  for (const std::string top : {"/proc", "/sys"}) {
    if (path != top && !path.starts_with(top + "/")) continue;
    TRY_ASSIGN(const UniqueFd fd, root.open_at(top, O_PATH | O_NOFOLLOW));
    struct stat status {};
    if (fstat(fd.get(), &status) != 0) return fail_errno(errno, "inspect " + top);
    if (S_ISLNK(status.st_mode))
      return fail(ErrorKind::denied, "mount on " + path + ": " + top + " is a link in this image");
  }
  return {};
}

Result<void> check_place(int fd, const MountStep& step, const RootDir& root, bool directory) {
  struct stat status {
  }, top{};
  if (fstat(fd, &status) != 0) return fail_errno(errno, "inspect " + step.target);
  if (fstat(root.fd(), &top) != 0) return fail_errno(errno, "inspect the root");
  if (status.st_dev == top.st_dev && status.st_ino == top.st_ino)
    return fail(ErrorKind::denied,
                "mount on " + step.target + ": it is the container's root, which would be hidden as a whole");
  if (S_ISDIR(status.st_mode) != directory)
    return fail(explain(Error::from_errno(directory ? ENOTDIR : EISDIR, "mount on " + step.target), step));
  return {};
}

/// What the container has there is as good as the host's: nothing has to be mounted.
Result<bool> is_there(int target_fd, const MountSource& source, const MountFlags& flags) {
  struct stat status {};
  if (fstat(target_fd, &status) != 0) return fail_errno(errno, "inspect the target");
  if (source.is_device())
    return (status.st_mode & S_IFMT) == (source.status.st_mode & S_IFMT) && status.st_rdev == source.status.st_rdev &&
           !has_flags(target_fd, {.no_dev = true});
  return status.st_dev == source.status.st_dev && status.st_ino == source.status.st_ino && has_flags(target_fd, flags);
}

Result<void> verify(const UniqueFd& mounted, const MountStep& step, const RootDir& root) {
  // What covers the root is not found from the descriptor that we have of it.
  if (step.target == "/") return {};
  TRY_ASSIGN(const uint64_t wanted, mount_id(mounted.get()));
  const auto found = root.resolve(step.target);
  if (found) {
    TRY_ASSIGN(const uint64_t there, mount_id(found->get()));
    if (there == wanted) return {};
  }
  (void)detach_mount(mounted.get());
  if (!found && found.error().inconclusive()) return fail(found.error());
  return fail(Error(ErrorKind::failure, "find " + step.target + " again after mounting on it: it is another file now")
                  .with_code(ErrorCode::mount_failed)
                  .with_hint("another process renames files in the container's root at this moment"));
}

}  // namespace

Result<UniqueFd> find_place(const MountStep& step, const ApplyTarget& target) {
  auto place = target.root.resolve(step.target);
  if (!place) return fail(explain(std::move(place).error(), step));
  return place;
}

Result<UniqueFd> open_place(const MountStep& step, const ApplyTarget& target, bool directory) {
  const RootDir& root = target.root;
  const bool for_device = is_for_device(step);
  if (step.create == CreateTarget::no && !for_device) return find_place(step, target);
  if (for_device) TRY(check_way(step.target, root));
  const bool chosen = step.create == CreateTarget::file || step.create == CreateTarget::directory;
  const bool make_directory = chosen ? step.create == CreateTarget::directory : directory;
  auto place =
      make_directory ? root.make_directories(step.target, kDirectoryMode) : root.make_file(step.target, kFileMode);
  if (!place) return fail(explain(std::move(place).error(), step));
  if (for_device) TRY(check_place(place->get(), step, root, directory));
  return place;
}

Result<void> place_file_system(const MountStep& step, const ApplyTarget& target) {
  TRY_ASSIGN(const UniqueFd place, open_place(step, target, true));
  MountFlags flags = step.flags;
  MountParameters parameters = step.parameters;
  const bool cover = step.kind == StepKind::cover;
  if (cover) {
    flags.read_only = false;
    const auto is_size = [](const auto& parameter) { return parameter.first == "size"; };
    if (std::none_of(parameters.begin(), parameters.end(), is_size)) parameters.emplace_back("size", kCoverSize);
  }
  TRY_ASSIGN(const UniqueFd mounted, mount_new_and_open(place.get(), cover ? "tmpfs" : step.type,
                                                        cover ? "tmpfs" : step.source, parameters, flags, step.target));
  return verify(mounted, step, target.root);
}

Result<uint64_t> give_image(const MountStep& step, const ApplyTarget& target, MountedImages& images) {
  constexpr int kFlags = O_RDONLY | O_NONBLOCK;  // whatever it is
  ImagePath path;
  UniqueFd file;
  if (is_of_registry(step)) {
    if (!step.place)
      return fail(Error(ErrorKind::unsupported, "it is not fetched for this mount")
                      .with_code(ErrorCode::mount_source)
                      .with_hint("images of registries are mounted by --container-mounts, --mount, environment files "
                                 "and the fstab files of the site and the user, and by nothing that is known later"));
    TRY_ASSIGN(file, duplicate_fd(step.place->file->get(), "the image"));
  } else if (const auto inside = path_in_root(step.source, target)) {
    TRY_ASSIGN(file, target.root.open_at(*inside, kFlags));
  } else {
    TRY_ASSIGN(path, image_path(step.source));
    TRY_ASSIGN(file, open_file(path.file, kFlags));
  }
  const bool both = !path.inside.empty() && !step.subpath.empty();
  return images.give(std::move(file), path.inside + (both ? "/" : "") + step.subpath);
}

Result<ImagePart> part_of_mounted(const MountStep& step) {
  TRY_ASSIGN(const RootDir image, RootDir::open(step.place->directory));
  ImagePart part;
  auto found = image.resolve("/" + step.subpath);
  if (!found)
    return fail(Error::from_errno(found.error().errnum(), "open " + printable(step.subpath) + " in the image")
                    .with_code(ErrorCode::mount_source));
  part.fd = std::move(*found);
  struct stat status {};
  if (fstat(part.fd.get(), &status) != 0) return fail_errno(errno, "inspect the image");
  part.is_directory = S_ISDIR(status.st_mode);
  return part;
}

Result<void> place_image(const ImagePart& part, const MountStep& step, const ApplyTarget& target) {
  TRY_ASSIGN(const UniqueFd place, open_place(step, target, part.is_directory));
  TRY(check_place(place.get(), step, target.root, part.is_directory));
  TRY_ASSIGN(const UniqueFd mounted, bind_and_open(place.get(), part.fd.get(), false, step.flags, step.target));
  return verify(mounted, step, target.root);
}

Result<void> place_bind(const MountSource& source, const MountStep& step, const ApplyTarget& target) {
  MountFlags flags = step.kind == StepKind::device ? kDeviceFlags : step.flags;
  if (is_for_device(step) && source.is_device()) flags.no_dev = false;
  TRY_ASSIGN(const UniqueFd place, open_place(step, target, source.is_directory()));
  if (is_for_device(step)) {
    TRY_ASSIGN(const bool there, is_there(place.get(), source, flags));
    if (there) return {};
  }
  auto mounted = bind_and_open(place.get(), source.fd.get(), step.recursive, flags, step.target);
  // In a user namespace a tree with mounts in it can only be bound whole, or hidden files would show
  // (mount_namespaces(7), "Restrictions on mount namespaces"). enroot's "bind" fails there; the whole tree is what
  // people want.
  if (!mounted && !step.recursive && mounted.error().errnum() == EINVAL)
    mounted = bind_and_open(place.get(), source.fd.get(), true, flags, step.target);
  if (!mounted) return fail(explain(std::move(mounted).error(), step));
  return verify(*mounted, step, target.root);
}

}  // namespace situla
