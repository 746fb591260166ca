#include "hooks/mount/image_mount.hpp"

#include <array>
#include <chrono>
#include <optional>

#include <fcntl.h>
#include <unistd.h>

#include "common/base/scope_exit.hpp"
#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/mount_api.hpp"
#include "common/sys/namespaces.hpp"
#include "common/sys/socket.hpp"
#include "hooks/unpack/extract.hpp"

namespace situla {
namespace {

constexpr std::chrono::milliseconds kTimeLimit{15000};
constexpr std::chrono::milliseconds kPollInterval{50};
constexpr size_t kMaxMessage = 4096;
constexpr int kImageNumber = 3;  // descriptors in the server
constexpr int kFuseNumber = 4;
// Never the user's PATH: the server sees every file of the image.
constexpr std::array<const char*, 4> kDirectories = {"/usr/bin/", "/usr/local/bin/", "/bin/", "/usr/libexec/situla/"};

struct Programs {
  std::string low_level;   ///< squashfuse_ll: several threads, but shows owners as they are in the image
  std::string high_level;  ///< squashfuse: -o uid= and gid=, slower
};

std::string find_program(const std::string& name) {
  for (const char* directory : kDirectories)
    if (std::string path = directory + name; access(path.c_str(), X_OK) == 0) return path;
  return {};
}

Programs find_programs() {
  return {find_program("squashfuse_ll"), find_program("squashfuse")};
}

Result<UniqueFd> open_fuse() {
  auto fd = open_file("/dev/fuse", O_RDWR);
  if (fd) return fd;
  Error error = std::move(fd).error();
  if (error.errnum() == EACCES)
    error.with_hint("every user needs access: chmod 666 /dev/fuse (udev does this on a normal node)");
  else
    error.with_hint("modprobe fuse, and make /dev/fuse visible here");
  return fail(std::move(error));
}

Error no_program() {
  return Error(ErrorKind::unsupported, "find squashfuse: it is not installed")
      .with_hint("install the package squashfuse on this node");
}

/// A mount, and the descriptor through which its server answers.
struct FuseMount {
  UniqueFd device;
  std::optional<DetachedMount> detached;  ///< still to be attached
};

MountParameters fuse_parameters(int device, uid_t uid, gid_t gid, bool every_id) {
  // user_id/group_id name who may use the mount; everybody in a container has these ids.
  MountParameters parameters = {{"fd", std::to_string(device)},
                                {"rootmode", "40000"},
                                {"user_id", std::to_string(uid)},
                                {"group_id", std::to_string(gid)},
                                {"default_permissions", ""}};
  if (every_id) parameters.emplace_back("allow_other", "");
  return parameters;
}

constexpr MountFlags kImageFlags{.read_only = true, .no_suid = true, .no_dev = true};

/// In the child: a file system belongs to the user namespace in which it is made, and that namespace says what its
/// owner ids mean. So it is made in one where the image's owner is our user.
Result<void> make_mount_in_child(int socket, uint32_t image_owner, uid_t uid, gid_t gid) {
  TRY(unshare_namespaces(kUserNs | kMountNs));
  TRY(write_own_id_maps(image_owner, uid, image_owner, gid));
  TRY_ASSIGN(const UniqueFd device, open_fuse());
  TRY_ASSIGN(
      const DetachedMount mount,
      new_mount("fuse", "situla-image", fuse_parameters(device.get(), image_owner, image_owner, false), kImageFlags));
  return send_packet(socket, "ok", {device.get(), mount.fd()});
}

Result<FuseMount> make_mapped_mount(uint32_t image_owner, uid_t uid, gid_t gid) {
  TRY_ASSIGN(auto sockets, socket_pair());
  TRY_ASSIGN(Child child, fork_child());
  if (!child) {
    auto done = make_mount_in_child(sockets.second.get(), image_owner, uid, gid);
    if (!done) (void)send_packet(sockets.second.get(), "!" + done.error().text());
    _exit(0);
  }
  sockets.second.reset();
  TRY_ASSIGN(std::optional<Packet> packet, receive_packet(sockets.first.get(), kMaxMessage));
  TRY(child.wait());
  if (!packet) return fail(ErrorKind::failure, "make a FUSE mount: the helper process died");
  if (packet->fds.size() != 2) return fail(ErrorKind::unsupported, "make a FUSE mount: " + packet->bytes.substr(1));
  FuseMount mount;
  mount.device = std::move(packet->fds[0]);
  mount.detached.emplace(std::move(packet->fds[1]));
  return mount;
}

/// What is started, and how its mount is made.
struct Service {
  std::string program;
  std::vector<std::string> options;
  FuseMount mount;
};

Result<Service> mapped_service(const std::string& program, uint32_t owner, uid_t uid, gid_t gid) {
  Service service{program, {}, {}};
  TRY_ASSIGN(service.mount, make_mapped_mount(owner, uid, gid));
  return service;
}

Result<Service> own_service(const std::string& program, int target, const std::string& mountpoint, uid_t uid,
                            gid_t gid) {
  Service service{program, {"-o", "uid=" + std::to_string(uid) + ",gid=" + std::to_string(gid)}, {}};
  TRY_ASSIGN(service.mount.device, open_fuse());
  TRY(mount_new_at(target, "fuse", "situla-image", fuse_parameters(service.mount.device.get(), uid, gid, true),
                   kImageFlags, mountpoint));
  return service;
}

/// The fast server where one owner has to be mapped; the other can pretend any number of owners away.
Result<Service> choose_service(const ImageInfo& info, int target, const std::string& mountpoint, uid_t uid, gid_t gid,
                               LogSink& log) {
  const Programs programs = find_programs();
  const std::string& mapped = programs.low_level.empty() ? programs.high_level : programs.low_level;
  if (mapped.empty()) return fail(no_program());
  if (info.only_owner && modern_mount_api()) {
    auto service = mapped_service(mapped, *info.only_owner, uid, gid);
    if (!service) {
      if (programs.high_level.empty()) return service;
      log.debug("image cannot be mounted with mapped ids, using squashfuse's uid option: " + service.error().text());
    } else {
      TRY_CONTEXT("mount on " + mountpoint, service->mount.detached->attach(target));
      return service;
    }
  }
  if (programs.high_level.empty())
    return fail(
        Error(ErrorKind::unsupported, "serve image: its files have several owners and only squashfuse_ll is installed")
            .with_hint("install squashfuse, or make the image with mksquashfs -all-root"));
  return own_service(programs.high_level, target, mountpoint, uid, gid);
}

Result<Child> start_server(const Service& service, int image_fd, int messages_fd) {
  SpawnOptions options;
  options.program = service.program;
  options.arguments = {service.program, "-f"};
  options.arguments.insert(options.arguments.end(), service.options.begin(), service.options.end());
  // Both by descriptor: the directory of the image may be closed to the user, and libfuse takes a mounted /dev/fuse as
  // /dev/fd/N.
  options.arguments.push_back("/proc/self/fd/" + std::to_string(kImageNumber));
  options.arguments.push_back("/dev/fd/" + std::to_string(kFuseNumber));
  options.environment = {"PATH=/usr/bin:/bin", "LC_ALL=C"};
  options.fds = {{image_fd, kImageNumber}, {service.mount.device.get(), kFuseNumber}, {messages_fd, 2}};
  options.new_session = true;
  return spawn(options);
}

std::string server_messages(int fd) {
  if (lseek(fd, 0, SEEK_SET) < 0) return {};
  auto text = read_all(fd, kMaxMessage);
  return text ? printable(trim(*text)) : std::string();
}

/// The first access waits for the server; made in a process of its own, so that one that never answers cannot stop us.
Result<void> wait_until_served(Child& server, const std::string& mountpoint, int messages_fd) {
  TRY_ASSIGN(Child probe, fork_child());
  if (!probe) {
    const int fd = open(mountpoint.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _exit(fd >= 0 ? 0 : 1);
  }
  const auto deadline = std::chrono::steady_clock::now() + kTimeLimit;
  std::string reason = "no answer within " + std::to_string(kTimeLimit.count() / 1000) + " s";
  while (std::chrono::steady_clock::now() < deadline) {
    TRY_ASSIGN(const auto answer, probe.wait_for(kPollInterval));
    if (answer && answer->success()) return {};
    TRY_ASSIGN(const auto ended, server.wait_for(std::chrono::milliseconds(answer ? 1000 : 0)));
    if (ended)
      reason = "it " + ended->text();
    else if (answer)
      reason = "the mount cannot be read";
    if (ended || answer) break;
  }
  const std::string said = server_messages(messages_fd);
  return fail(ErrorKind::failure, "serve image: squashfuse: " + (said.empty() ? reason : said + " (" + reason + ")"));
}

}  // namespace

Result<void> fuse_available() {
  const Programs programs = find_programs();
  if (programs.low_level.empty() && programs.high_level.empty()) return fail(no_program());
  TRY_ASSIGN(const UniqueFd device, open_fuse());
  return {};
}

Result<Child> serve_image(int image_fd, const std::string& mountpoint, uid_t uid, gid_t gid, LogSink& log) {
  TRY_ASSIGN(const ImageInfo info, read_image_info(image_fd));
  TRY_ASSIGN(const UniqueFd target, open_file(mountpoint, O_PATH | O_DIRECTORY));
  TRY_ASSIGN(const UniqueFd messages, memory_file("squashfuse"));
  TRY_ASSIGN(Service service, choose_service(info, target.get(), mountpoint, uid, gid, log));
  ScopeExit undo([&mountpoint] { (void)unmount(mountpoint, true); });
  TRY_ASSIGN(Child server, start_server(service, image_fd, messages.get()));
  // Only the server may hold the device now: when it dies, the kernel ends every request with an error instead of
  // waiting.
  service.mount.device.reset();
  TRY(wait_until_served(server, mountpoint, messages.get()));
  log.debug("image served by " + service.program);
  undo.dismiss();
  return server;
}

}  // namespace situla
