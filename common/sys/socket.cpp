#include "common/sys/socket.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/kernel.hpp"

namespace situla {
namespace {

constexpr size_t kMaxPacketFds = 16;
constexpr int kBacklog = 128;

Result<UniqueFd> seqpacket_socket() {
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd) return fail_errno(errno, "create unix socket");
  return fd;
}

struct Address {
  sockaddr_un name{};
  socklen_t size = 0;
};
Result<Address> named_address(std::string_view name) {
  Address address;
  // The last byte stays NUL, which ends a path.
  if (name.empty() || name.size() >= sizeof address.name.sun_path)
    return fail(ErrorKind::usage, "use a unix socket: bad address of " + std::to_string(name.size()) + " bytes");
  address.name.sun_family = AF_UNIX;
  name.copy(address.name.sun_path, name.size());
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  return address;
}

/// For calls that do not wait: EAGAIN counts only while poll(2) says the same, POLLIN or POLLOUT.
template <typename Call>
ssize_t when_ready(int socket, short event, Call call) {
  constexpr int kTries = 3;
  for (int tries = 1;; ++tries) {
    const ssize_t size = kernel::uninterrupted(call);
    if (size >= 0 || errno != EAGAIN || tries == kTries) return size;
    pollfd look{socket, event, 0};
    if (poll(&look, 1, 0) != 1) {
      errno = EAGAIN;
      return size;
    }
  }
}

/// Takes ownership of every descriptor that came with a message, whatever else is wrong with it.
std::vector<UniqueFd> take_descriptors(msghdr& message) {
  std::vector<UniqueFd> fds;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
  return fds;
}

}  // namespace

Result<Listener> listen_abstract() {
  TRY_ASSIGN(UniqueFd fd, seqpacket_socket());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // Only the family: the kernel chooses a free abstract name (autobind).
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(sa_family_t)) != 0)
    return fail_errno(errno, "bind unix socket");
  if (listen(fd.get(), kBacklog) != 0) return fail_errno(errno, "listen on unix socket");
  socklen_t size = sizeof address;
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return fail_errno(errno, "read the name of a unix socket");
  const size_t length = size - offsetof(sockaddr_un, sun_path);
  return Listener{std::move(fd), std::string(address.sun_path, length)};
}

Result<UniqueFd> listen_at(std::string_view path) {
  TRY_ASSIGN(const Address address, named_address(path));
  TRY_ASSIGN(UniqueFd fd, seqpacket_socket());
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.name), address.size) != 0)
    return fail_errno(errno, "bind unix socket " + printable(path));
  if (listen(fd.get(), kBacklog) != 0) return fail_errno(errno, "listen on unix socket");
  return fd;
}

Result<UniqueFd> connect_to(std::string_view name) {
  TRY_ASSIGN(const Address address, named_address(name));
  TRY_ASSIGN(UniqueFd fd, seqpacket_socket());
  const auto* const at = reinterpret_cast<const sockaddr*>(&address.name);
  if (kernel::uninterrupted([&] { return connect(fd.get(), at, address.size); }) != 0)
    return fail_errno(errno, "connect to unix socket " + printable(name));
  return fd;
}

Result<UniqueFd> accept_from(int listener) {
  for (;;) {
    UniqueFd fd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) return fd;
    if (errno != EINTR && errno != ECONNABORTED) return fail_errno(errno, "accept connection");
  }
}

Result<std::pair<UniqueFd, UniqueFd>> socket_pair() {
  std::array<int, 2> fds{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds.data()) != 0)
    return fail_errno(errno, "create socket pair");
  return std::make_pair(UniqueFd(fds[0]), UniqueFd(fds[1]));
}

Result<PeerCredentials> peer_credentials(int socket) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0)
    return fail_errno(errno, "read the peer of a socket");
  return PeerCredentials{credentials.pid, credentials.uid, credentials.gid};
}

Result<void> send_packet(int socket, std::string_view bytes, const std::vector<int>& fds, Wait wait) {
  // An empty packet cannot be told from the end of the stream by the receiver.
  if (bytes.empty()) return fail(ErrorKind::usage, "send packet: empty");
  if (fds.size() > kMaxPacketFds) return fail(ErrorKind::usage, "send packet: more than 16 descriptors");
  iovec piece{const_cast<char*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxPacketFds * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(part), fds.data(), fds.size() * sizeof(int));
  }
  const int flags = wait == Wait::no ? MSG_NOSIGNAL | MSG_DONTWAIT : MSG_NOSIGNAL;
  if (when_ready(socket, POLLOUT, [&] { return sendmsg(socket, &message, flags); }) < 0)
    return fail_errno(errno, "send packet of " + std::to_string(bytes.size()) + " bytes");
  return {};
}

namespace {

/// room: for how many descriptors. Of those that have none the kernel lets go.
Result<std::optional<Packet>> receive(int socket, size_t max_bytes, int flags, size_t room = kMaxPacketFds) {
  Packet packet;
  packet.bytes.resize(max_bytes);
  iovec piece{packet.bytes.data(), packet.bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxPacketFds * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (room > 0) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(room * sizeof(int));
  }
  const ssize_t size = when_ready(socket, POLLIN, [&] { return recvmsg(socket, &message, MSG_CMSG_CLOEXEC | flags); });
  // A peer that closed with unread packets resets the connection; for the reader the stream is over either way.
  if (size < 0 && errno == ECONNRESET) return std::optional<Packet>();
  if (size < 0) return fail_errno(errno, "receive packet");
  packet.fds = take_descriptors(message);
  if ((message.msg_flags & (room > 0 ? MSG_TRUNC | MSG_CTRUNC : MSG_TRUNC)) != 0)
    return fail(ErrorKind::corrupt, "receive packet: larger than " + std::to_string(max_bytes) + " bytes" +
                                        (room > 0 ? " or more than 16 descriptors" : ""));
  if (size == 0) return std::optional<Packet>();
  packet.bytes.resize(static_cast<size_t>(size));
  return std::optional<Packet>(std::move(packet));
}

}  // namespace

Result<void> wait_for_packet(int socket, std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    pollfd entry{socket, POLLIN, 0};
    const int ready = poll(&entry, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return fail_errno(errno, "wait for a packet");
    if (ready == 0) return fail(ErrorKind::failure, "wait for a packet: silence");
  }
}

bool has_hung_up(int socket) {
  pollfd look{socket, POLLRDHUP, 0};
  return poll(&look, 1, 0) == 1;
}

size_t unread_bytes(int socket) {
  int count = 0;
  return ioctl(socket, SIOCOUTQ, &count) == 0 && count > 0 ? static_cast<size_t>(count) : 0;
}

Result<std::optional<Packet>> receive_packet(int socket, size_t max_bytes) {
  return receive(socket, max_bytes, 0);
}

Result<std::optional<std::string>> receive_bytes(int socket, size_t max_bytes, Leave leave) {
  TRY_ASSIGN(auto packet, receive(socket, max_bytes, MSG_DONTWAIT | (leave == Leave::there ? MSG_PEEK : 0), 0));
  return packet ? std::optional(std::move(packet->bytes)) : std::nullopt;
}

Result<Parcel> make_parcel() {
  TRY_ASSIGN(auto ends, socket_pair());
  return Parcel{std::move(ends.first), std::move(ends.second)};
}

Result<void> put_into_parcel(int in, const std::vector<int>& fds) {
  return send_packet(in, "files", fds);
}

Result<std::vector<UniqueFd>> take_from_parcel(int out, Leave leave) {
  constexpr size_t kMaxBytes = 65536;
  std::vector<UniqueFd> found;
  for (;;) {
    auto packet = receive(out, kMaxBytes, MSG_DONTWAIT | (leave == Leave::there ? MSG_PEEK : 0));
    if (!packet && packet.error().errnum() != EAGAIN) return fail(std::move(packet).error());
    if (!packet || !*packet) break;
    found = std::move((*packet)->fds);
    if (leave == Leave::there) break;
  }
  if (found.empty()) return fail(ErrorKind::not_found, "take files from another process: it has sent none");
  return found;
}

Result<UniqueFd> memory_file(std::string_view name) {
  const std::string label(name);
  // vm.memfd_noexec=2 demands the flag, kernels before 6.3 refuse it.
  UniqueFd fd(memfd_create(label.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING | kernel::kMemfdNoExecSeal));
  if (!fd && errno == EINVAL) fd.reset(memfd_create(label.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return fail_errno(errno, "create memory file " + label);
  return fd;
}

Result<void> write_memory(int fd, std::string_view bytes) {
  if (ftruncate(fd, 0) != 0) return fail_errno(errno, "empty memory file");
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t count = kernel::uninterrupted(
        [&] { return pwrite(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done)); });
    if (count < 0) return fail_errno(errno, "write memory file");
    done += static_cast<size_t>(count);
  }
  return {};
}

Result<void> seal_memory(int fd) {
  if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return fail_errno(errno, "seal memory file");
  return {};
}

Result<UniqueFd> sealed_memory(std::string_view name, std::string_view bytes) {
  TRY_ASSIGN(UniqueFd fd, memory_file(name));
  TRY_CONTEXT(std::string(name), write_memory(fd.get(), bytes));
  TRY_CONTEXT(std::string(name), seal_memory(fd.get()));
  return fd;
}

Result<std::string> read_sealed_memory(int fd, size_t limit) {
  // Only memory files have seals. Anything else could change, block (FUSE) or never end while it is read.
  const int wanted = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & wanted) != wanted)
    return fail(ErrorKind::corrupt, "read memory file: it is not sealed against changes");
  struct stat status {};
  if (fstat(fd, &status) != 0) return fail_errno(errno, "read memory file");
  const auto size = static_cast<size_t>(status.st_size);
  if (size > limit)
    return fail(ErrorKind::corrupt, "read memory file: " + std::to_string(size) + " bytes, at most " +
                                        std::to_string(limit) + " are allowed");
  std::string bytes(size, '\0');
  for (size_t done = 0; done < size;) {
    const ssize_t count =
        kernel::uninterrupted([&] { return pread(fd, bytes.data() + done, size - done, static_cast<off_t>(done)); });
    if (count < 0) return fail_errno(errno, "read memory file");
    if (count == 0) return fail(ErrorKind::corrupt, "read memory file: ended early");
    done += static_cast<size_t>(count);
  }
  return bytes;
}

}  // namespace situla
