#include "plugin/broker/node/image_mounts.hpp"

#include <array>
#include <cstdio>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/sys/directory.hpp"
#include "common/sys/mount/dm_device.hpp"
#include "common/sys/mount/loop_device.hpp"
#include "common/sys/mount/mount_api.hpp"

namespace situla {
namespace {

constexpr std::chrono::seconds kLockWait{30}, kNoWait{0};
constexpr int64_t kSquashfsMagic = 0x73717368;  // linux/magic.h, SQUASHFS_MAGIC
constexpr MountFlags kImageFlags{.read_only = true, .no_suid = true, .no_dev = true};
constexpr const char* kDevices = "situla-view-";  // names of our own device-mapper devices begin so
constexpr const char* kRefused = "/no-id-map";    // beside the mounts
constexpr const char* kDmLock = "/device-mapper";

bool is_squashfs(int fd) {
  const auto type = filesystem_type(fd);
  return type && *type == kSquashfsMagic;
}

/// The lock file's time of last use.
void touch(int lock_fd) {
  (void)futimens(lock_fd, nullptr);
}

/// A sweep removed the lock file before we got the lock: it guards nothing any more.
bool is_removed(int lock_fd) {
  struct stat info {};
  return fstat(lock_fd, &info) != 0 || info.st_nlink == 0;
}

Result<void> check_store_file(int fd, uid_t service, const std::string& service_user, nlink_t names) {
  constexpr mode_t kMode = 0400;
  struct stat info {};
  if (fstat(fd, &info) != 0) return fail_errno(errno, "stat the image of the store");
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0) return fail_errno(errno, "look at the descriptor of the image");
  if (S_ISREG(info.st_mode) && info.st_uid == service && (info.st_mode & 07777U) == kMode && info.st_nlink == names &&
      (flags & (O_ACCMODE | O_PATH)) == O_RDONLY)
    return {};
  std::array<char, 96> found{};
  (void)std::snprintf(found.data(), found.size(), "mode %06o, owner %u, %llu names, opened with %#o", info.st_mode,
                      info.st_uid, static_cast<unsigned long long>(info.st_nlink), static_cast<unsigned>(flags));
  return fail(Error(ErrorKind::denied, std::string("the image of the store is not a file of ") +
                                           (names == 0 ? "no" : "one") + " name that only " + service_user +
                                           " can read and nobody can write (" + found.data() + ")")
                  .with_code(ErrorCode::installation)
                  .with_hint("the store must belong to the service user: situla doctor shows how it should look"));
}

/// A mount is one loop device with the label of its user, whatever else it needs.
Result<LoopDevice> attach_within_share(int image_fd, const MountShare& share) {
  const std::string label = "situla:" + std::to_string(share.uid);
  if (share.most == 0) return LoopDevice::attach(image_fd, label);
  TRY_ASSIGN(const FileLock alone, FileLock::acquire(share.lock, FileLock::Kind::exclusive, kLockWait));
  if (const size_t count = LoopDevice::count(label); count >= share.most)
    return fail(Error(ErrorKind::failure, std::to_string(count) + " images are mounted for this user already, and " +
                                              std::to_string(share.most) + " may be")
                    .with_code(ErrorCode::mount_limit)
                    .with_hint("they go with the last process that uses them, in jobs or outside: end some of your "
                               "jobs on this node, or wait; mounts_per_user in situla.toml is the limit"));
  return LoopDevice::attach(image_fd, label);
}

}  // namespace

Result<void> check_store_image(int fd, uid_t service, const std::string& service_user) {
  return check_store_file(fd, service, service_user, 1);
}

Result<void> check_store_view(int fd, uid_t service, const std::string& service_user) {
  return check_store_file(fd, service, service_user, 0);
}

Result<DetachedMount> mount_image_file(int image_fd, const MountShare& share) {
  TRY_ASSIGN(const LoopDevice device, attach_within_share(image_fd, share));
  return new_mount("squashfs", device.path(), {}, kImageFlags);
}

Result<DetachedMount> mount_patched_file(int image_fd, int blocks, uint64_t offset, const MountShare& share) {
  constexpr uint64_t kSector = 512;
  struct stat image {
  }, patch{};
  if (fstat(image_fd, &image) != 0 || fstat(blocks, &patch) != 0) return fail_errno(errno, "stat the image's blocks");
  const uint64_t sectors = static_cast<uint64_t>(image.st_size) / kSector;
  const uint64_t begin = offset / kSector, count = static_cast<uint64_t>(patch.st_size) / kSector;
  if (offset % kSector != 0 || count == 0 || begin > sectors || count > sectors - begin)
    return fail(ErrorKind::corrupt, "the blocks of a view do not lie in the image");
  TRY_ASSIGN(const LoopDevice whole, attach_within_share(image_fd, share));
  TRY_ASSIGN(const LoopDevice own, LoopDevice::attach(blocks, kDevices));
  std::vector<DmPiece> pieces = {{own.fd(), 0, count}};
  if (begin > 0) pieces.insert(pieces.begin(), {whole.fd(), 0, begin});
  if (begin + count < sectors) pieces.push_back({whole.fd(), begin + count, sectors - begin - count});
  TRY_ASSIGN(const DmDevice device, DmDevice::make(kDevices, pieces));
  return new_mount("squashfs", device.path(), {}, kImageFlags);
}

void ImageInUse::leave() const {
  touch(lock.fd());
  if (image) touch(image->fd());
}

Result<ImageMounts> ImageMounts::open(const std::string& runtime) {
  TRY(make_directories(runtime, 0755));
  TRY(make_directories(runtime + "/images", 0700));
  return ImageMounts(runtime + "/images");
}

bool ImageMounts::refused_id_map() const {
  return access((directory_ + kRefused).c_str(), F_OK) == 0;
}

void ImageMounts::note_refused_id_map() const {
  (void)write_file_atomically(directory_ + kRefused, "", 0600, Sync::no);
}

Result<FileLock> ImageMounts::lock_dm() const {
  return FileLock::acquire(directory_ + kDmLock, FileLock::Kind::shared, kLockWait);
}

Result<ImageInUse> ImageMounts::acquire(const std::string& name,
                                        const std::function<Result<DetachedMount>()>& make) const {
  const std::string path = directory_ + "/" + name;
  const std::string lock_path = path + ".lock";
  // Again and again: between giving up the exclusive lock and getting the shared one, a sweep of another broker may
  // unmount.
  for (int attempt = 0; attempt < 8; ++attempt) {
    TRY(make_directories(path, 0700));
    {
      TRY_ASSIGN(FileLock shared, FileLock::acquire(lock_path, FileLock::Kind::shared, kLockWait));
      if (is_removed(shared.fd())) continue;
      auto mount = open_file(path, O_PATH | O_DIRECTORY | O_NOFOLLOW);
      if (!mount && mount.error().errnum() == ENOENT) continue;
      if (!mount) return fail(std::move(mount).error());
      if (is_squashfs(mount->get())) {
        touch(shared.fd());
        return ImageInUse{std::move(shared), std::move(*mount)};
      }
    }
    TRY_ASSIGN(const FileLock exclusive, FileLock::acquire(lock_path, FileLock::Kind::exclusive, kLockWait));
    if (is_removed(exclusive.fd())) continue;
    const auto target = open_file(path, O_PATH | O_DIRECTORY | O_NOFOLLOW);
    if (!target && target.error().errnum() == ENOENT) continue;
    if (!target) return fail(target.error());
    if (!is_squashfs(target->get())) {
      TRY_ASSIGN(const DetachedMount mount, make());
      TRY(mount.attach(target->get()));
    }
    touch(exclusive.fd());
  }
  return fail(ErrorKind::failure, "mount of image " + name + " disappears as fast as it is made");
}

void ImageMounts::drop_idle(std::chrono::seconds idle) const {
  // What a broker left that was killed between making a device and mounting it.
  if (access((directory_ + kDmLock).c_str(), F_OK) == 0)
    if (const auto alone = FileLock::acquire(directory_ + kDmLock, FileLock::Kind::exclusive, kNoWait))
      DmDevice::remove_unused(kDevices);
  const auto names = list_directory(directory_);
  if (!names) return;
  for (const std::string& file : *names) {
    if (!file.ends_with(".lock")) continue;
    const std::string lock_path = directory_ + "/" + file;
    const std::string path = lock_path.substr(0, lock_path.size() - 5);
    struct stat info {};
    if (stat(lock_path.c_str(), &info) != 0) continue;
    const int64_t age = time(nullptr) - info.st_mtime;  // below 0: the node's clock has been set back since
    if (age >= 0 && age < idle.count()) continue;
    // Held by a broker whose step uses the image: not idle, whatever its age.
    const auto lock = FileLock::acquire(lock_path, FileLock::Kind::exclusive, kNoWait);
    if (!lock) continue;
    const auto mount = open_file(path, O_PATH | O_DIRECTORY | O_NOFOLLOW);
    if (mount && is_squashfs(mount->get()) && !unmount(path, true)) continue;
    // Whoever waits for the lock finds its file removed and begins anew.
    (void)rmdir(path.c_str());
    (void)unlink(lock_path.c_str());
  }
}

}  // namespace situla
