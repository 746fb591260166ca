#include "plugin/broker/image.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include "common/sys/mount/mount_api.hpp"
#include "common/sys/mount/namespaces.hpp"
#include "common/sys/process/cgroup.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/process/secrecy.hpp"
#include "common/sys/socket.hpp"
#include "plugin/broker/operation.hpp"

namespace situla {
namespace {

constexpr std::chrono::milliseconds kLookLimit{5000};

/// Whether a process of the user can stand between the kernel and the file's bytes.
Result<void> check_kernel_may_read(int file) {
  constexpr int64_t kFuse = 0x65735546;     // linux/magic.h, FUSE_SUPER_MAGIC
  constexpr int64_t kOverlay = 0x794c7630;  // OVERLAYFS_SUPER_MAGIC: over such a one, maybe
  constexpr int64_t kEcryptfs = 0xf15f;
  TRY_ASSIGN(const int64_t type, filesystem_type(file));
  if (type == kFuse || type == kOverlay || type == kEcryptfs)
    return fail(ErrorKind::unsupported, "the image lies in a file system that another one serves");
  struct stat info {};
  const int flags = fcntl(file, F_GETFL);
  if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode) || flags < 0 || (flags & O_PATH) != 0 ||
      (flags & O_ACCMODE) == O_WRONLY)
    return fail(ErrorKind::unsupported, "the image is no regular file that is open for reading");
  return {};
}

/// RootOperation::mount_image and map_image_owner.
Result<StepImage> mount_for_user(const Step& step, int file, const std::string& store_name, UniqueFd mapping) {
  StepImage image;
  image.mode = "mounted";
  UniqueFd taken;
  if (store_name.empty()) {
    TRY_ASSIGN(taken, take_user_image(step, file));
    file = taken.get();
  }
  const MountShare share{step.user.uid, step.config.mounts_per_user};
  const auto mount = [&]() -> Result<DetachedMount> {
    if (store_name.empty()) return mount_image_file(file, share);
    TRY_ASSIGN(image.in_use, step.mounts.acquire(store_name, file, share));
    return clone_tree(image.in_use->mount.get(), false);
  };
  auto mounted = mount();
  if (!mounted) return fail(std::move(mounted).error().with_context(phrase(RootOperation::mount_image)));
  const auto map = [&]() -> Result<void> {
    if (!mapping) {
      TRY_ASSIGN(mapping, make_mapping_namespace(step.user.uid, step.user.gid));
    }
    return mounted->map_ids(mapping.get());
  };
  TRY_CONTEXT(phrase(RootOperation::map_image_owner), map());
  if (step.request.save) {
    TRY_ASSIGN(image.saved, duplicate_fd(file, "the image"));
  }
  image.mount = mounted->take();
  return image;
}

}  // namespace

Result<StepImage> make_image(const Step& step, int file, const std::string& store_name, UniqueFd mapping) {
  const MountKind kind = step.request.use_squashfuse ? MountKind::fuse : step.config.mount;
  const bool may_mount = !store_name.empty() || step.config.kernel_mount_user_images;
  if (may_mount && (kind == MountKind::automatic || kind == MountKind::kernel)) {
    auto image = mount_for_user(step, file, store_name, std::move(mapping));
    if (image || kind == MountKind::kernel) return image;
    syslog(LOG_NOTICE, "falling back to FUSE or extraction: %s", image.error().message().c_str());
  }
  StepImage image;
  image.mode = kind == MountKind::fuse ? "image-fuse" : kind == MountKind::extract ? "image-extract" : "image-auto";
  return image;
}

Result<UniqueFd> take_user_image(const Step& step, int socket) {
  TRY_ASSIGN(const CgroupPlace place, step.launcher.cgroups.step());
  TRY_ASSIGN(const auto line, socket_pair());
  TRY_ASSIGN(Child child, fork_child());
  if (!child) {
    const auto look = [&]() -> Result<void> {
      TRY(die_with_parent());
      TRY(move_to_cgroups(getpid(), place.text()));
      TRY(become(step.user));
      const KeepSecrets untraceable;
      TRY_ASSIGN(const auto files, take_from_parcel(socket, Leave::there));
      TRY(check_kernel_may_read(files.back().get()));
      return send_packet(line.second.get(), "image", {files.back().get()});
    };
    const auto looked = look();
    if (!looked) (void)send_packet(line.second.get(), looked.error().message());
    _exit(0);
  }
  pollfd answer{line.first.get(), POLLIN, 0};
  if (poll(&answer, 1, static_cast<int>(kLookLimit.count())) != 1)
    return fail(ErrorKind::unsupported, "the image's file system does not answer");
  TRY_ASSIGN(auto packet, receive_packet(line.first.get(), kMaxMessageBytes));
  if (!packet) return fail(ErrorKind::unsupported, "the image cannot be looked at");
  if (packet->fds.size() != 1) return fail(ErrorKind::unsupported, packet->bytes);
  return std::move(packet->fds[0]);
}

}  // namespace situla
