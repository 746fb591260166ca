#include "common/sys/mount/mount_api.hpp"

#include <array>
#include <atomic>

#include <sys/vfs.h>

#include "common/base/text.hpp"
#include "common/sys/fd_path.hpp"
#include "common/sys/kernel.hpp"
#include "common/sys/mount/mount_classic.hpp"

namespace situla {
namespace {

/// fsconfig(2) copies strings of at most 256 bytes, the final NUL included.
constexpr size_t kMaxParameter = 255;

// A constant-initialized atomic: what the process was told to use, and what probing found (0 unknown, 1 modern, 2
// classic).
std::atomic<MountApi> chosen_api{MountApi::automatic};
std::atomic<int> probed_api{0};

/// Bad arguments on purpose: any answer but ENOSYS means that the kernel knows the call. mount_setattr(2) is the
/// youngest (5.12).
bool kernel_has_mount_api() {
  if (const int fd = kernel::fsopen("", kernel::kFsopenCloexec); fd >= 0)
    (void)close(fd);
  else if (errno == ENOSYS)
    return false;
  return kernel::mount_setattr(-1, "", 0, nullptr, 0) == 0 || errno != ENOSYS;
}

uint64_t attributes(const MountFlags& flags) {
  uint64_t bits = 0;
  for (const classic::FlagBits& row : classic::kFlagBits)
    if (flags.*row.flag) bits |= row.attribute;
  return bits;
}

Result<void> set_attributes(int fd, const kernel::MountAttributes& change, bool recursive, std::string_view what) {
  const unsigned at = AT_EMPTY_PATH | (recursive ? kernel::kAtRecursive : 0U);
  if (kernel::mount_setattr(fd, "", at, &change, sizeof change) != 0) return fail_errno(errno, what);
  return {};
}

/// What the kernel wrote about the last call on a file system context, e.g. "overlay: upperdir is in-use"; often the
/// only place that says why mounting failed.
std::string context_log(int context) {
  std::string log;
  std::array<char, 512> line{};
  for (int lines = 0; lines < 16; ++lines) {
    const ssize_t size = read(context, line.data(), line.size());
    if (size <= 0) break;
    std::string_view text(line.data(), static_cast<size_t>(size));
    // "e ", "w " or "i " tells the severity.
    if (text.size() > 2 && text[1] == ' ') text.remove_prefix(2);
    if (!log.empty()) log += "; ";
    log += printable(trim(text));
  }
  return log;
}

Error context_error(int errnum, int context, std::string what) {
  const std::string log = context_log(context);
  if (!log.empty()) what += " (kernel: " + log + ")";
  return Error::from_errno(errnum, what);
}

Result<void> configure(int context, const MountParameters& parameters, const std::string& what) {
  for (const auto& [key, value] : parameters) {
    if (value.size() > kMaxParameter)
      return fail(ErrorKind::unsupported, what + ": option " + key + " is longer than 255 bytes");
    const int answer = value.empty()
                           ? kernel::fsconfig(context, kernel::kFsconfigSetFlag, key.c_str(), nullptr, 0)
                           : kernel::fsconfig(context, kernel::kFsconfigSetString, key.c_str(), value.c_str(), 0);
    if (answer != 0) {
      const int errnum = errno;
      return fail(context_error(errnum, context, what + ": option " + key + (value.empty() ? "" : "=" + value))
                      .with_code(ErrorCode::mount_failed));
    }
  }
  return {};
}

Error mount_error(int errnum, const std::string& what, const std::string& type) {
  Error error = Error::from_errno(errnum, what);
  if (errnum == ENODEV)
    error.with_code(ErrorCode::kernel)
        .with_hint("this kernel has no file system \"" + type + "\" (modprobe " + type + ")");
  return std::move(error).with_code(ErrorCode::mount_failed);
}

}  // namespace

void set_mount_api(MountApi api) {
  chosen_api.store(api);
}

bool modern_mount_api() {
  const MountApi api = chosen_api.load();
  if (api != MountApi::automatic) return api == MountApi::modern;
  int found = probed_api.load();
  if (found == 0) {
    found = kernel_has_mount_api() ? 1 : 2;
    probed_api.store(found);
  }
  return found == 1;
}

Result<DetachedMount> new_mount(const std::string& type, const std::string& source, const MountParameters& parameters,
                                const MountFlags& flags) {
  if (!modern_mount_api()) return fail_errno(ENOSYS, "make a detached " + type + " mount");
  const std::string what = "mount " + type + (source.empty() || source == type ? "" : " from " + source);
  const UniqueFd context(kernel::fsopen(type.c_str(), kernel::kFsopenCloexec));
  if (!context) return fail(mount_error(errno, what, type));
  MountParameters all;
  if (!source.empty()) all.emplace_back("source", source);
  // As mount(2) with MS_RDONLY: the file system itself too, or a read-only device is refused.
  if (flags.read_only) all.emplace_back("ro", "");
  all.insert(all.end(), parameters.begin(), parameters.end());
  TRY(configure(context.get(), all, what));
  if (kernel::fsconfig(context.get(), kernel::kFsconfigCreate, nullptr, nullptr, 0) != 0) {
    const int errnum = errno;
    return fail(context_error(errnum, context.get(), what).with_code(ErrorCode::mount_failed));
  }
  UniqueFd mount(kernel::fsmount(context.get(), kernel::kFsmountCloexec, static_cast<unsigned>(attributes(flags))));
  if (!mount) {
    const int errnum = errno;
    Error error = context_error(errnum, context.get(), what);
    if (errnum == EPERM && (type == "proc" || type == "sysfs"))
      error.with_code(ErrorCode::namespaces)
          .with_hint("in a user namespace a new " + type +
                     " is allowed only where the host's own is visible without anything mounted over parts of it; "
                     "bind it instead");
    return fail(std::move(error).with_code(ErrorCode::mount_failed));
  }
  return DetachedMount(std::move(mount));
}

Result<DetachedMount> clone_tree(int fd, bool recursive) {
  if (!modern_mount_api()) return fail_errno(ENOSYS, "clone a mount");
  const unsigned flags = kernel::kOpenTreeClone | kernel::kOpenTreeCloexec | unsigned{AT_EMPTY_PATH} |
                         (recursive ? kernel::kAtRecursive : 0U);
  UniqueFd tree(kernel::open_tree(fd, "", flags));
  if (tree) return DetachedMount(std::move(tree));
  Error error = Error::from_errno(errno, "clone a mount");
  if (error.errnum() == EINVAL && !recursive)
    error.with_code(ErrorCode::mount_failed)
        .with_hint("mounts beneath it hide files that a non-recursive bind would show; in a user namespace use rbind");
  return fail(std::move(error));
}

Result<void> DetachedMount::map_ids(int userns_fd) {
  kernel::MountAttributes change{};
  change.set = kernel::kMountIdMap;
  change.userns_fd = static_cast<uint64_t>(userns_fd);
  auto done = set_attributes(fd_.get(), change, false, "map ids of a mount");
  if (!done && done.error().errnum() == EINVAL)
    return fail(Error(ErrorKind::unsupported, done.error().message())
                    .with_code(ErrorCode::kernel)
                    .with_hint("this file system has no id-mapped mounts in this kernel (squashfs: Linux 6.2), or the "
                               "mount is mapped or attached already"));
  return done;
}

Result<void> DetachedMount::attach(int target_fd) const {
  if (kernel::move_mount(fd_.get(), "", target_fd, "",
                         kernel::kMoveMountFromEmptyPath | kernel::kMoveMountToEmptyPath) != 0)
    return fail_errno(errno, "attach a mount");
  return {};
}

Result<UniqueFd> mount_new_and_open(int target_fd, const std::string& type, const std::string& source,
                                    const MountParameters& parameters, const MountFlags& flags,
                                    std::string_view operand) {
  const std::string context = "mount on " + std::string(operand);
  if (!modern_mount_api()) {
    TRY_CONTEXT(context, classic::mount_new(target_fd, type, source, parameters, flags));
    return classic::open_mounted(target_fd, -1);
  }
  auto mount = new_mount(type, source, parameters, flags);
  if (!mount) return fail(std::move(mount).error().with_context(context));
  TRY_CONTEXT(context, mount->attach(target_fd));
  return mount->take();
}

Result<UniqueFd> bind_and_open(int target_fd, int source_fd, bool recursive, const MountFlags& flags,
                               std::string_view operand) {
  const std::string context = "bind on " + std::string(operand);
  if (!modern_mount_api()) {
    TRY_CONTEXT(context, classic::bind(target_fd, source_fd, recursive, flags));
    return classic::open_mounted(target_fd, source_fd);
  }
  auto tree = clone_tree(source_fd, recursive);
  if (!tree) return fail(std::move(tree).error().with_context(context));
  TRY_CONTEXT(context, add_mount_flags(tree->fd(), flags, recursive));
  TRY_CONTEXT(context, tree->attach(target_fd));
  return tree->take();
}

Result<void> mount_new_at(int target_fd, const std::string& type, const std::string& source,
                          const MountParameters& parameters, const MountFlags& flags, std::string_view operand) {
  if (modern_mount_api()) {
    TRY(mount_new_and_open(target_fd, type, source, parameters, flags, operand));
    return {};
  }
  TRY_CONTEXT("mount on " + std::string(operand), classic::mount_new(target_fd, type, source, parameters, flags));
  return {};
}

Result<void> bind_at(int target_fd, int source_fd, bool recursive, const MountFlags& flags, std::string_view operand) {
  if (modern_mount_api()) {
    TRY(bind_and_open(target_fd, source_fd, recursive, flags, operand));
    return {};
  }
  TRY_CONTEXT("bind on " + std::string(operand), classic::bind(target_fd, source_fd, recursive, flags));
  return {};
}

Result<void> add_mount_flags(int fd, const MountFlags& flags, bool recursive) {
  if (attributes(flags) == 0) return {};
  if (!modern_mount_api()) return classic::add_flags(fd, flags, recursive);
  kernel::MountAttributes change{};
  change.set = attributes(flags);
  // The atime modes exclude each other, so the field is cleared when one is set.
  if (flags.no_atime) change.clear = kernel::kMountAtimeModes;
  return set_attributes(fd, change, recursive, "add flags to a mount");
}

Result<void> set_propagation(const std::string& path, Propagation propagation, bool recursive) {
  unsigned long flags = propagation == Propagation::private_mount ? MS_PRIVATE
                        : propagation == Propagation::slave       ? MS_SLAVE
                        : propagation == Propagation::unbindable  ? MS_UNBINDABLE
                                                                  : MS_SHARED;
  if (recursive) flags |= MS_REC;
  if (mount(nullptr, path.c_str(), nullptr, flags, nullptr) != 0)
    return fail_errno(errno, "set the propagation of mount " + path);
  return {};
}

Result<void> unmount(const std::string& path, bool detach) {
  if (umount2(path.c_str(), UMOUNT_NOFOLLOW | (detach ? MNT_DETACH : 0)) != 0)
    return fail_errno(errno, "unmount " + path);
  return {};
}

Result<void> detach_mount(int fd) {
  if (umount2(fd_path(fd).c_str(), MNT_DETACH) != 0) return fail_errno(errno, "take a mount away");
  return {};
}

Result<void> pivot_into(int root_fd) {
  const UniqueFd old_root(open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!old_root) return fail_errno(errno, "open /");
  if (fchdir(root_fd) != 0) return fail_errno(errno, "enter the new root");
  // The old root is stacked on the new one (pivot_root(2), "pivot_root(".", ".")"), so no directory in it is needed.
  if (kernel::pivot_root(".", ".") != 0) {
    Error error = Error::from_errno(errno, "change the root");
    if (error.errnum() == EINVAL)
      error.with_code(ErrorCode::mount_failed)
          .with_hint(
              "the new root must be a mount point and no mount involved may be shared; a host that runs from an "
              "initramfs (rootfs) cannot pivot");
    return fail(std::move(error));
  }
  if (fchdir(old_root.get()) != 0) return fail_errno(errno, "enter the old root");
  // Nothing that is unmounted here may be unmounted in the namespace that this one was copied from.
  if (mount(nullptr, ".", nullptr, MS_SLAVE | MS_REC, nullptr) != 0)
    return fail_errno(errno, "set the propagation of the old root");
  if (umount2(".", MNT_DETACH) != 0) return fail_errno(errno, "detach the old root");
  if (chdir("/") != 0) return fail_errno(errno, "enter the new root");
  return {};
}

Result<int64_t> filesystem_type(int fd) {
  struct statfs status {};
  if (fstatfs(fd, &status) != 0) return fail_errno(errno, "inspect file system");
  return static_cast<int64_t>(status.f_type);
}

}  // namespace situla
