#include "hooks/mount/image_mount.hpp"

#include <algorithm>
#include <climits>
#include <csignal>
#include <optional>
#include <tuple>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "common/sys/identity.hpp"
#include "common/sys/mount/mount_api.hpp"
#include "common/sys/mount/namespaces.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/socket.hpp"
#include "common/sys/tcp.hpp"
#include "hooks/mount/image_server.hpp"
#include "hooks/unpack/read_image.hpp"

namespace situla {
namespace {

constexpr size_t kMaxMessage = 256;
constexpr MountFlags kImageFlags{.read_only = true, .no_suid = true, .no_dev = true};

Result<UniqueFd> open_fuse() {
  auto fd = open_file("/dev/fuse", O_RDWR);
  if (fd) return fd;
  Error error = std::move(fd).error();
  if (error.errnum() == EACCES)
    error.with_code(ErrorCode::kernel)
        .with_hint("every user needs access: chmod 666 /dev/fuse (udev does this on a normal node)");
  else
    error.with_code(ErrorCode::kernel).with_hint("modprobe fuse, and make /dev/fuse visible here");
  return fail(std::move(error));
}

/// What the server is made of.
struct Service {
  ImageAccess image;
  int image_fd = -1;
  UniqueFd device;
  ImageOwners owners;
  std::string mountpoint;
};

/// Signals sent to the step or the terminal's group are meant for the user's program.
void block_signals() {
  sigset_t all;
  sigfillset(&all);
  (void)sigprocmask(SIG_SETMASK, &all, nullptr);
}

/// Nothing of the host is to be seen through who only answers for images, nor kept busy by it. place: a directory of
/// ours, in whose stead there is nothing from here on.
Result<void> leave_host(const std::string& place) {
  TRY_ASSIGN(const UniqueFd point, open_file(place, O_PATH | O_DIRECTORY));
  TRY(mount_new_at(point.get(), "tmpfs", "tmpfs", {{"size", "4k"}, {"mode", "500"}}, {.no_suid = true, .no_dev = true},
                   place));
  TRY_ASSIGN(const UniqueFd root, open_file(place, O_PATH | O_DIRECTORY));
  return pivot_into(root.get());
}

/// In the server of several images. Its mount namespace has what was mounted before, and must not get what is mounted
/// afterwards, or the images would keep themselves alive.
[[noreturn]] void run_server_of_several(int device, int socket, uid_t uid, gid_t gid, const std::string& place) {
  const ProcessName name("situla-image");
  (void)setsid();
  block_signals();
  (void)node_processors();
  std::ignore = chdir("/");
  close_other_fds(0, {device, socket});
  constexpr int kImages = 1024;  // a table of 8 KiB; more of them are more rarely
  allow_many_descriptors();
  reserve_descriptors(kImages);  // while this process has one thread
  const auto alone = [&]() -> Result<void> {
    TRY(unshare_namespaces(kMountNs));
    TRY(set_propagation("/", Propagation::private_mount, true));
    // The caller mounts meanwhile, and waits for the first image.
    TRY(send_packet(socket, "ready"));
    TRY(leave_host(place));
    return drop_all_capabilities();
  };
  _exit(alone() && serve_images(socket, device, uid, gid) ? 0 : 1);
}

/// In the server. The mount must not be in this process's own mount namespace, or it would keep itself alive: so that
/// is made first, and the caller mounts when it is told "ready".
[[noreturn]] void run_server(Service& service, int socket) {
  const ProcessName name("situla-image");
  (void)setsid();
  block_signals();
  (void)node_processors();
  std::ignore = chdir("/");
  close_other_fds(0, {service.image_fd, service.device.get(), socket});
  if (!unshare_namespaces(kMountNs) || !set_propagation("/", Propagation::private_mount, true) ||
      !send_packet(socket, "ready"))
    _exit(1);
  const auto go = receive_packet(socket, kMaxMessage);
  if (!go || !*go) _exit(1);
  close(socket);
  if (!leave_host(service.mountpoint) || !drop_all_capabilities()) _exit(1);
  _exit(serve_requests(service.image, service.device.get(), service.owners) ? 0 : 1);
}

/// In the process between, which ends at once, so that the server is nobody's child.
[[noreturn]] void start_server(Service& service, int socket) {
  auto server = fork_child();
  if (!server) _exit(1);
  if (!*server) run_server(service, socket);
  const std::string number = std::to_string(server->pid());
  const UniqueFd pidfd = server->release();
  if (pidfd)
    (void)send_packet(socket, number, {pidfd.get()});
  else
    (void)send_packet(socket, number);
  _exit(0);
}

Error died() {
  return Error(ErrorKind::failure, "serve image: the server could not be started").with_code(ErrorCode::helper);
}

/// Its number and its word that it is ready come in either order.
Result<ImageServer> await_server(int socket) {
  ImageServer server;
  for (bool ready = false; !ready || !server;) {
    TRY_ASSIGN(std::optional<Packet> packet, receive_packet(socket, kMaxMessage));
    if (!packet) return fail(died());
    if (packet->bytes == "ready") {
      ready = true;
      continue;
    }
    const auto pid = parse_unsigned(packet->bytes);
    if (!pid) return fail(died());
    server.pid = static_cast<pid_t>(*pid);
    if (!packet->fds.empty()) server.pidfd = std::move(packet->fds[0]);
  }
  return server;
}

MountParameters fuse_parameters(int device, uid_t uid, gid_t gid) {
  // allow_other: for every id of the user namespace, and of those made in it.
  return {{"fd", std::to_string(device)},
          {"rootmode", "40000"},
          {"user_id", std::to_string(uid)},
          {"group_id", std::to_string(gid)},
          {"max_read", "1048576"},
          {"default_permissions", ""},
          {"allow_other", ""}};
}

}  // namespace

Result<void> fuse_available() {
  TRY_ASSIGN(const UniqueFd device, open_fuse());
  return {};
}

Result<ImageServer> serve_image(int image_fd, const std::string& mountpoint, uid_t uid, gid_t gid, LogSink& log) {
  TRY_ASSIGN(ImageAccess image, ImageAccess::open(image_fd));
  // So that an image whose root is damaged is an error here, where it can be said.
  TRY_ASSIGN(const StoredInode top, image.top());
  TRY(image.list(top));
  TRY_ASSIGN(ImageOwners owners, ImageOwners::of(image, NamespaceIds::own(), uid, gid));
  Service service{std::move(image), image_fd, UniqueFd(), std::move(owners), mountpoint};
  TRY_ASSIGN(const UniqueFd target, open_file(mountpoint, O_PATH | O_DIRECTORY));
  TRY_ASSIGN(service.device, open_fuse());
  TRY_ASSIGN(auto sockets, socket_pair());
  TRY_ASSIGN(Child between, fork_child());
  if (!between) start_server(service, sockets.second.get());
  sockets.second.reset();
  TRY(between.wait());
  TRY_ASSIGN(ImageServer server, await_server(sockets.first.get()));
  TRY(mount_new_at(target.get(), "fuse", "situla-image", fuse_parameters(service.device.get(), uid, gid), kImageFlags,
                   mountpoint));
  // Without this word, and without the caller, it ends. Only the server may hold the device: when it dies, the kernel
  // ends every request with an error instead of waiting.
  TRY(send_packet(sockets.first.get(), "go"));
  log.debug("image served by process " + std::to_string(server.pid));
  return server;
}

Result<void> MountedImages::start_server() {
  const uid_t uid = geteuid();
  const gid_t gid = getegid();
  TRY_ASSIGN(const UniqueFd device, open_fuse());
  TRY_ASSIGN(auto sockets, socket_pair());
  TRY_ASSIGN(Child between, fork_child());
  if (!between) {
    auto server = fork_child();
    if (server && !*server) run_server_of_several(device.get(), sockets.second.get(), uid, gid, place_);
    if (server) (void)server->release();
    _exit(server ? 0 : 1);
  }
  sockets.second.reset();
  TRY(between.wait());
  TRY_ASSIGN(const auto ready, receive_packet(sockets.first.get(), kMaxMessage));
  if (!ready) return fail(died());
  const std::string path = place_ + "/images";
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return fail_errno(errno, "create directory " + path);
  TRY_ASSIGN(const UniqueFd point, open_file(path, O_PATH | O_DIRECTORY | O_NOFOLLOW));
  // From here on only the server holds the device: when it dies, the kernel ends every request with an error.
  TRY_ASSIGN(directory_, mount_new_and_open(point.get(), "fuse", "situla-images",
                                            fuse_parameters(device.get(), uid, gid), kImageFlags, path));
  server_ = std::move(sockets.first);
  return {};
}

Result<uint64_t> MountedImages::give(UniqueFd image, const std::string& inside) {
  if (!server_) TRY(start_server());
  if (inside.size() >= PATH_MAX) return fail_errno(ENAMETOOLONG, "find a path in the image");
  struct stat status {};
  if (fstat(image.get(), &status) != 0) return fail_errno(errno, "inspect the image");
  if (device_ && status.st_dev == *device_)
    return fail(Error(ErrorKind::unsupported, "it lies in an image that is mounted in this container")
                    .with_code(ErrorCode::mount_source)
                    .with_hint("a file cannot be served by what has it from a mount of its own; copy it out"));
  given_.push_back({std::move(image), inside});
  // What cannot be sent now is sent, or said, when it is needed. Descriptors on their way are counted, for all of a
  // user's processes together (unix(7), ETOOMANYREFS).
  if (++unsent_ >= kMostImagesInPacket && sent() - answered_ <= kMostImagesInPacket) (void)send_next();
  return taken_ + given_.size();
}

/// The first of those that are unsent, as many as a packet takes.
Result<void> MountedImages::send_next() {
  std::string paths;
  std::vector<int> images;
  for (size_t at = given_.size() - unsent_; at < given_.size() && images.size() < kMostImagesInPacket; ++at) {
    const Given& given = given_[at];
    if (paths.size() + given.inside.size() + 2 > kMostPacketBytes) break;
    paths += "/" + given.inside + '\0';
    images.push_back(given.image.get());
  }
  TRY(send_packet(server_.get(), paths, images));
  unsent_ -= images.size();
  return {};
}

/// And for as many more as have been answered meanwhile.
Result<void> MountedImages::await(uint64_t number) {
  pollfd more{server_.get(), POLLIN, 0};
  while (answered_ < number || (answered_ < sent() && poll(&more, 1, 0) == 1)) {
    if (sent() < number) {
      auto done = send_next();
      const bool later = !done && done.error().errnum() == ETOOMANYREFS && answered_ < sent();
      if (!done && !later) return done;
      if (done) continue;
    }
    TRY_ASSIGN(const auto answer, receive_packet(server_.get(), kMaxMessage));
    if (!answer || answer->bytes.empty()) return fail(died());
    answered_ += answer->bytes.size();
    has_one_ = has_one_ || answer->bytes.find(kIsThere) != std::string::npos;
  }
  return {};
}

Result<ImagePart> MountedImages::take(uint64_t number) {
  constexpr uint64_t kInOneAnswer = 24;  // entries of 160 bytes in a page
  TRY(await(number));
  Given given;
  for (; taken_ < number; ++taken_) {
    given = std::move(given_.front());
    given_.pop_front();
  }
  if (number > listed_ && has_one_) {
    if (!listing_) listing_ = open_file_at(directory_.get(), ".", O_RDONLY | O_DIRECTORY).value_or(UniqueFd());
    if (listing_) ask_for_names(listing_.get());
    listed_ = std::min(answered_, listed_ + kInOneAnswer);
  }
  ImagePart part;
  struct stat status {};
  part.fd = UniqueFd(openat(directory_.get(), std::to_string(number).c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (part.fd && fstat(part.fd.get(), &status) == 0) {
    device_ = status.st_dev;
    part.is_directory = S_ISDIR(status.st_mode);
    return part;
  }
  const int errnum = errno;
  // Why, in words.
  TRY_ASSIGN(ImageAccess access, ImageAccess::open(given.image.get()));
  TRY_ASSIGN(const StoredInode inode, given.inside.empty() ? access.top() : find_in_image(access, given.inside));
  if (S_ISDIR(inode.mode)) TRY(access.list(inode));
  return fail_errno(errnum, "open the image");
}

}  // namespace situla
