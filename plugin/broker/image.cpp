#include "plugin/broker/image.hpp"

#include <functional>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <syslog.h>
#include <unistd.h>

#include "common/protocol/contract.hpp"
#include "common/sys/file.hpp"
#include "common/sys/mount/mount_api.hpp"
#include "common/sys/mount/namespaces.hpp"
#include "common/sys/process/cgroup.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/process/secrecy.hpp"
#include "common/sys/socket.hpp"
#include "common/sys/users.hpp"
#include "plugin/broker/events/heard.hpp"
#include "plugin/broker/node/id_ranges.hpp"
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

MountShare share_of(const Step& step) {
  return {step.user.uid, step.config.mounts_per_user, step.mounts.share_lock(step.user.uid)};
}

/// Mounts that nobody uses stay for a while, and are no reason to refuse one.
Result<DetachedMount> mount_within_share(const Step& step, const std::function<Result<DetachedMount>()>& mount) {
  auto mounted = mount();
  if (mounted || mounted.error().code() != ErrorCode::mount_limit) return mounted;
  step.mounts.drop_idle(std::chrono::seconds(0));
  return mount();
}

/// Asks the store program, as the service user, for one file. `image`: what it gets of us, or -1.
Result<Heard> ask_store(const Step& step, const Identity& service, std::vector<std::string> arguments, int image) {
  arguments.insert(arguments.begin(), {"--store", step.config.store_path});
  Launch what{Program::store, std::move(arguments), step.launcher.cgroups.broker(), service, Rights::service};
  if (image >= 0) what.fds = {{image, store_fd::kImage}};
  TRY_ASSIGN(const Helper store, step.launcher.launch_helper(std::move(what), store_fd::kBroker));
  pollfd answer{store.socket.get(), POLLIN, 0};
  if (poll(&answer, 1, static_cast<int>(kLookLimit.count())) != 1)
    return fail(ErrorKind::unsupported, "the store program does not answer");
  TRY_ASSIGN(auto heard, hear_store(store.socket.get()));
  if (!heard) return fail(ErrorKind::failure, "the store program ended without a word");
  if (const auto* failure = std::get_if<Failure>(&heard->message)) return fail(error_of(*failure));
  if (heard->fds.size() != 1) return fail(ErrorKind::corrupt, "the store program sent no file");
  return std::move(*heard);
}

/// RootOperation::make_view: a file with other owners, or the blocks that make it one.
Result<DetachedMount> mount_new_view(const Step& step, int file) {
  const SiteConfig& config = step.config;
  TRY_ASSIGN(const Identity service, identity_of_user(config.service_user));
  std::vector<std::string> arguments = {"--view", std::to_string(step.user.uid) + ":" + std::to_string(step.user.gid)};
  if (config.image_owner != OwnerWay::automatic)
    arguments.insert(arguments.end(), {"--way", std::string(to_string(config.image_owner))});
  TRY_ASSIGN(const Heard heard, ask_store(step, service, std::move(arguments), file));
  const auto* view = std::get_if<ViewMade>(&heard.message);
  if (view == nullptr) return fail(ErrorKind::corrupt, "the store program sent no view of the image");
  const int made = heard.fds[0].get();
  if (view->whole) {
    TRY(check_store_view(made, service.uid, config.service_user));
    return mount_within_share(step, [&] { return mount_image_file(made, share_of(step)); });
  }
  TRY(read_sealed_memory(made, 2 * ViewMade::kBlockBytes));
  TRY_ASSIGN(const FileLock making, step.mounts.lock_dm());
  return mount_within_share(step, [&] { return mount_patched_file(file, made, view->offset, share_of(step)); });
}

/// RootOperation::keep_container_image: of an image that the user has had, by its name.
Result<UniqueFd> borrow_image(const Step& step, const std::string& store_name) {
  TRY_ASSIGN(const Identity service, identity_of_user(step.config.service_user));
  TRY_ASSIGN(Heard heard, ask_store(step, service, {"--lend", store_name}, -1));
  if (!std::holds_alternative<ImageLent>(heard.message))
    return fail(ErrorKind::corrupt, "the store program did not lend the image");
  TRY(check_store_image(heard.fds[0].get(), service.uid, step.config.service_user));
  return std::move(heard.fds[0]);
}

/// An image of the store or of the user's: its file is opened when something needs it.
class ImageFile {
 public:
  explicit ImageFile(GivenImage given) : given_(std::move(given)) {}
  static ImageFile of_store(const Step& step, std::string store_name) {
    ImageFile file({-1, std::move(store_name), false});
    file.step_ = &step;
    return file;
  }

  /// Empty: it is the user's.
  [[nodiscard]] const std::string& store_name() const { return given_.store_name; }
  /// Steps that begin when there is a copy read that one, however long others go on with the store's file.
  [[nodiscard]] std::string mount_name() const { return given_.store_name + (given_.local ? ".local" : ""); }
  Result<int> open() {
    if (given_.file >= 0) return given_.file;
    TRY_ASSIGN(borrowed_, borrow_image(*step_, given_.store_name));
    given_.file = borrowed_.get();
    return given_.file;
  }

 private:
  GivenImage given_;
  const Step* step_ = nullptr;
  UniqueFd borrowed_;
};

/// RootOperation::mount_image; on this node once for all.
Result<ImageInUse> acquire_image(const Step& step, ImageFile& file, const MountShare& share) {
  return step.mounts.acquire(file.mount_name(), [&]() -> Result<DetachedMount> {
    TRY_ASSIGN(const int fd, file.open());
    return mount_within_share(step, [&] { return mount_image_file(fd, share); });
  });
}

/// The image as the user's own, without an id-mapped mount. No other user gets this one.
Result<StepImage> mount_view(const Step& step, ImageFile& file) {
  StepImage image;
  image.mode = "mounted";
  const std::string name =
      file.mount_name() + ".v" + std::to_string(step.user.uid) + "." + std::to_string(step.user.gid);
  auto found = step.mounts.acquire(name, [&]() -> Result<DetachedMount> {
    TRY_ASSIGN(const int fd, file.open());
    return mount_new_view(step, fd);
  });
  if (!found) return fail(std::move(found).error().with_context(phrase(RootOperation::make_view)));
  image.in_use = std::move(*found);
  struct stat root {};
  constexpr unsigned kLoopMajor = 7;
  if (fstat(image.in_use->mount.get(), &root) != 0) return fail_errno(errno, "stat the view of the image");
  image.owner_way = major(root.st_dev) == kLoopMajor ? OwnerWay::reflink : OwnerWay::dm;
  if (image.owner_way == OwnerWay::reflink) {
    // Nobody has the image itself open: it is mounted, too, so that the store keeps it as long as views of it. This
    // mount is nobody's share.
    TRY_ASSIGN(ImageInUse whole, acquire_image(step, file, {0, 0, {}}));
    image.in_use->image = std::move(whole.lock);
  }
  TRY_ASSIGN(DetachedMount mounted, clone_tree(image.in_use->mount.get(), false));
  image.mount = mounted.take();
  return image;
}

/// Images of the store have one owner. A user's own may have been saved from a container with a range, and has all of
/// its owners then. His groups on this node are none of them.
Result<UniqueFd> mapping_for(const Step& step, bool of_user) {
  const Identity& user = step.user;
  const auto range = of_user ? range_of(user, step.config.id_ranges) : std::nullopt;
  return range ? make_mapping_namespace(map_range({user.uid, user.gid, {}}, true, *range))
               : make_mapping_namespace(user.uid, user.gid);
}

/// RootOperation::mount_image and map_image_owner.
Result<StepImage> mount_mapped(const Step& step, ImageFile& file, UniqueFd mapping) {
  StepImage image;
  image.mode = "mounted";
  image.owner_way = OwnerWay::idmap;
  const auto mount = [&]() -> Result<DetachedMount> {
    if (file.store_name().empty()) {
      TRY_ASSIGN(const int fd, file.open());
      return mount_within_share(step, [&] { return mount_image_file(fd, share_of(step)); });
    }
    TRY_ASSIGN(image.in_use, acquire_image(step, file, share_of(step)));
    return clone_tree(image.in_use->mount.get(), false);
  };
  auto mounted = mount();
  if (!mounted)
    return fail(
        std::move(mounted).error().with_context(phrase(RootOperation::mount_image)).with_code(ErrorCode::mount_failed));
  const auto map = [&]() -> Result<void> {
    if (!mapping || file.store_name().empty()) {
      TRY_ASSIGN(mapping, mapping_for(step, file.store_name().empty()));
    }
    return mounted->map_ids(mapping.get());
  };
  if (auto mapped = map(); !mapped) {
    if (mapped.error().kind() == ErrorKind::unsupported) step.mounts.note_refused_id_map();
    return fail(std::move(mapped).error().with_context(phrase(RootOperation::map_image_owner)));
  }
  image.mount = mounted->take();
  return image;
}

Result<StepImage> mount_for_user(const Step& step, ImageFile& file, UniqueFd mapping) {
  const bool of_store = !file.store_name().empty();
  const OwnerWay wanted = step.config.image_owner;
  // A user's own file is not ours to show with other owners.
  const bool may_map = wanted == OwnerWay::automatic || wanted == OwnerWay::idmap || !of_store;
  const bool may_view = wanted != OwnerWay::idmap && of_store;
  Result<StepImage> image = fail(ErrorKind::unsupported, "this kernel does not id-map images");
  if (may_map && (!may_view || !step.mounts.refused_id_map())) image = mount_mapped(step, file, std::move(mapping));
  if (!image && may_view && (!may_map || step.mounts.refused_id_map())) image = mount_view(step, file);
  return image;
}

Result<StepImage> mount_given(const Step& step, GivenImage given, UniqueFd mapping) {
  UniqueFd taken;
  if (given.store_name.empty()) {
    TRY_ASSIGN(taken, take_user_image(step, given.file));
    given.file = taken.get();
  }
  ImageFile file(given);
  TRY_ASSIGN(StepImage image, mount_for_user(step, file, std::move(mapping)));
  if (step.request.save) {
    TRY_ASSIGN(image.saved, duplicate_fd(given.file, "the image"));
  }
  return image;
}

MountKind wanted_kind(const Step& step) {
  return step.request.use_squashfuse ? MountKind::fuse : step.config.mount;
}

}  // namespace

Result<StepImage> make_image(const Step& step, const GivenImage& given, UniqueFd mapping) {
  const MountKind kind = wanted_kind(step);
  const bool may_mount = !given.store_name.empty() || step.config.kernel_mount_user_images;
  StepImage image;
  if (may_mount && (kind == MountKind::automatic || kind == MountKind::kernel)) {
    auto mounted = mount_given(step, given, std::move(mapping));
    if (mounted || kind == MountKind::kernel) return mounted;
    image.not_mounted = mounted.error().message();
    syslog(LOG_NOTICE, "falling back to FUSE or extraction: %s", image.not_mounted.c_str());
  }
  image.mode = kind == MountKind::fuse ? "image-fuse" : kind == MountKind::extract ? "image-extract" : "image-auto";
  return image;
}

Result<StepImage> mount_copied_image(const Step& step, const std::string& store_name) {
  const MountKind kind = wanted_kind(step);
  if (kind != MountKind::automatic && kind != MountKind::kernel)
    return fail(ErrorKind::unsupported, "images are not to be mounted by the kernel");
  ImageFile file = ImageFile::of_store(step, store_name);
  return mount_for_user(step, file, UniqueFd());
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
