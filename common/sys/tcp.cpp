#include "common/sys/tcp.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include <net/if.h>

#include "common/base/codec.hpp"
#include "common/sys/identity.hpp"

namespace situla {
namespace {

constexpr size_t kMostAddresses = 8;
constexpr int kBacklog = 1024;

/// Of either family; an IPv4 address that an IPv6 socket shows is one of IPv4.
struct Address {
  sockaddr_storage name{};
  socklen_t size = 0;

  [[nodiscard]] sockaddr* any() { return reinterpret_cast<sockaddr*>(&name); }
  [[nodiscard]] const sockaddr_in6& six() const { return reinterpret_cast<const sockaddr_in6&>(name); }
  [[nodiscard]] const sockaddr_in& four() const { return reinterpret_cast<const sockaddr_in&>(name); }
  [[nodiscard]] sockaddr_in6& six() { return reinterpret_cast<sockaddr_in6&>(name); }
  [[nodiscard]] sockaddr_in& four() { return reinterpret_cast<sockaddr_in&>(name); }
};

/// None: of no family that is known, or only good on its own link.
std::optional<std::string> text_of(const Address& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const char* written = nullptr;
  if (address.name.ss_family == AF_INET) {
    constexpr uint32_t kLink = 0xa9fe0000, kLinkMask = 0xffff0000;  // 169.254.0.0/16
    if ((ntohl(address.four().sin_addr.s_addr) & kLinkMask) == kLink) return std::nullopt;
    written = inet_ntop(AF_INET, &address.four().sin_addr, text.data(), text.size());
  } else if (address.name.ss_family == AF_INET6) {
    const in6_addr& six = address.six().sin6_addr;
    if (IN6_IS_ADDR_LINKLOCAL(&six)) return std::nullopt;
    constexpr size_t kFourAt = 12;  // ::ffff:192.0.2.1
    written = IN6_IS_ADDR_V4MAPPED(&six) ? inet_ntop(AF_INET, &six.s6_addr[kFourAt], text.data(), text.size())
                                         : inet_ntop(AF_INET6, &six, text.data(), text.size());
  }
  if (written == nullptr) return std::nullopt;
  return written;
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

Result<TcpListener> listen_of(int family, uint16_t port) {
  TcpListener listener;
  listener.fd.reset(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.fd) return fail_errno(errno, "create TCP socket");
  const int off = 0;
  if (family == AF_INET6 && setsockopt(listener.fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0)
    return fail_errno(errno, "take IPv4 on an IPv6 socket");
  Address address;
  address.name.ss_family = static_cast<sa_family_t>(family);
  address.size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  (family == AF_INET6 ? address.six().sin6_port : address.four().sin_port) = htons(port);
  if (bind(listener.fd.get(), address.any(), address.size) != 0 || listen(listener.fd.get(), kBacklog) != 0 ||
      getsockname(listener.fd.get(), address.any(), &address.size) != 0)
    return fail_errno(errno, "listen on a TCP port");
  listener.port = ntohs(family == AF_INET6 ? address.six().sin6_port : address.four().sin_port);
  return listener;
}

void add(std::vector<std::string>& addresses, const sockaddr* name) {
  if (name == nullptr || (name->sa_family != AF_INET && name->sa_family != AF_INET6)) return;
  Address address;
  address.size = name->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  std::memcpy(&address.name, name, address.size);
  const auto text = text_of(address);
  if (text && std::find(addresses.begin(), addresses.end(), *text) == addresses.end()) addresses.push_back(*text);
}

}  // namespace

Result<TcpListener> listen_tcp(std::optional<PortRange> ports) {
  const auto listen_on = [](uint16_t port) {
    auto both = listen_of(AF_INET6, port);
    return both || both.error().errnum() == EADDRINUSE ? std::move(both) : listen_of(AF_INET, port);
  };
  if (!ports) return listen_on(0);
  if (ports->first == 0 || ports->last < ports->first) return fail(ErrorKind::usage, "no range of ports");
  // Not all processes of a node begin at the same one.
  const uint32_t count = uint32_t{ports->last} - ports->first + 1;
  const uint32_t begin = static_cast<uint32_t>(getpid()) % count;
  auto listener = fail_errno(EADDRINUSE, "listen on a TCP port");
  for (uint32_t i = 0; i < count; ++i)
    if (auto one = listen_on(static_cast<uint16_t>(ports->first + (begin + i) % count)); one) return one;
  return listener;
}

namespace {

std::vector<std::string> addresses_of_interfaces() {
  std::vector<std::string> own;
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return own;
  for (const ifaddrs* each = interfaces; each != nullptr; each = each->ifa_next)
    if ((each->ifa_flags & IFF_UP) != 0) add(own, each->ifa_addr);
  freeifaddrs(interfaces);
  return own;
}

}  // namespace

std::vector<std::string> addresses_elsewhere(const std::vector<std::string>& addresses) {
  const auto own = addresses_of_interfaces();
  std::vector<std::string> others;
  for (const std::string& one : addresses)
    if (!is_loopback(one) && std::find(own.begin(), own.end(), one) == own.end()) others.push_back(one);
  return others.empty() ? addresses : others;
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> found;
  const auto own = addresses_of_interfaces();
  const std::string host = host_name();
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* answers = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &answers) == 0) {
    for (const addrinfo* each = answers; each != nullptr; each = each->ai_next) add(found, each->ai_addr);
    freeaddrinfo(answers);
  }
  // What the name means elsewhere, or meant once, is not this node's.
  std::erase_if(found, [&](const std::string& one) { return std::find(own.begin(), own.end(), one) == own.end(); });
  for (const std::string& one : own)
    if (std::find(found.begin(), found.end(), one) == found.end()) found.push_back(one);
  if (std::any_of(found.begin(), found.end(), [](const std::string& one) { return !is_loopback(one); }))
    std::erase_if(found, is_loopback);
  found.resize(std::min(found.size(), kMostAddresses));
  return found;
}

Result<UniqueFd> begin_to_connect(const std::string& text, uint32_t port) {
  Address address;
  const bool six = text.find(':') != text.npos;
  address.name.ss_family = six ? AF_INET6 : AF_INET;
  address.size = six ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  void* bytes = six ? static_cast<void*>(&address.six().sin6_addr) : static_cast<void*>(&address.four().sin_addr);
  if (port == 0 || port > UINT16_MAX || inet_pton(six ? AF_INET6 : AF_INET, text.c_str(), bytes) != 1)
    return fail(ErrorKind::usage, "no address and port of a node");
  (six ? address.six().sin6_port : address.four().sin_port) = htons(static_cast<uint16_t>(port));
  UniqueFd fd(socket(address.name.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fail_errno(errno, "create TCP socket");
  if (connect(fd.get(), address.any(), address.size) != 0 && errno != EINPROGRESS)
    return fail_errno(errno, "connect to " + text);
  return fd;
}

Result<void> connected(int socket) {
  int errnum = 0;
  socklen_t size = sizeof errnum;
  if (getsockopt(socket, SOL_SOCKET, SO_ERROR, &errnum, &size) != 0) errnum = errno;
  if (errnum != 0) return fail_errno(errnum, "connect");
  return {};
}

Result<std::string> peer_address(int socket) {
  Address address;
  address.size = sizeof address.name;
  if (getpeername(socket, address.any(), &address.size) != 0) return fail_errno(errno, "ask who is connected");
  auto text = text_of(address);
  if (!text) return fail(ErrorKind::failure, "an address of no known kind");
  return *text;
}

Result<std::pair<std::string, uint32_t>> local_address(int socket) {
  Address address;
  address.size = sizeof address.name;
  if (getsockname(socket, address.any(), &address.size) != 0) return fail_errno(errno, "ask for the own address");
  auto text = text_of(address);
  if (!text) return fail(ErrorKind::failure, "an address of no known kind");
  return std::pair(
      *text, uint32_t{ntohs(address.name.ss_family == AF_INET6 ? address.six().sin6_port : address.four().sin_port)});
}

Result<void> set_limits(int socket, unsigned silence_ms) {
  const int on = 1;
  // Also of an end to which nothing is sent.
  constexpr unsigned kProbes = 3;
  const int between = static_cast<int>(std::max(silence_ms / (kProbes + 1) / 1000, 1U));
  if (setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &between, sizeof between) != 0 ||
      setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &between, sizeof between) != 0 ||
      setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &kProbes, sizeof kProbes) != 0)
    return fail_errno(errno, "set up TCP socket");
  if (setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
      setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) != 0 ||
      setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence_ms, sizeof silence_ms) != 0)
    return fail_errno(errno, "set up TCP socket");
  return {};
}

Result<size_t> send_some(int socket, std::string_view bytes) {
  const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0) return static_cast<size_t>(sent);
  if (errno == EAGAIN || errno == EINTR) return size_t{0};
  return fail_errno(errno, "send");
}

Result<uint64_t> send_some_of(int socket, int file, uint64_t offset, uint64_t most) {
  auto at = static_cast<off_t>(offset);
  const ssize_t sent = sendfile(socket, file, &at, most);
  if (sent > 0) return static_cast<uint64_t>(sent);
  if (sent == 0) return fail(ErrorKind::corrupt, "the file has become shorter");
  if (errno == EAGAIN || errno == EINTR) return uint64_t{0};
  return fail_errno(errno, "send");
}

Result<std::optional<size_t>> receive_some(int socket, char* to, size_t most) {
  const ssize_t got = recv(socket, to, most, MSG_DONTWAIT);
  if (got >= 0) return static_cast<size_t>(got);
  if (errno == EAGAIN || errno == EINTR) return std::nullopt;
  return fail_errno(errno, "receive");
}

short TcpFrames::events() const {
  return static_cast<short>(out_.empty() ? POLLIN : POLLIN | POLLOUT);
}

void TcpFrames::say(std::string_view frame) {
  Encoder length;
  length.u32(static_cast<uint32_t>(frame.size()));
  out_ += length.take();
  out_ += frame;
}

Result<void> TcpFrames::flush() {
  if (out_.empty()) return {};
  TRY_ASSIGN(const size_t sent, send_some(fd(), out_));
  out_.erase(0, sent);
  return {};
}

/// Whether so many bytes are there.
Result<bool> TcpFrames::fill(size_t bytes) {
  while (in_.size() < bytes) {
    std::array<char, 4096> piece{};
    TRY_ASSIGN(const auto got, receive_some(fd(), piece.data(), std::min(piece.size(), bytes - in_.size())));
    if (!got) return false;
    if (*got == 0) return fail_errno(EPIPE, "the other node has closed the connection");
    in_.append(piece.data(), *got);
  }
  return true;
}

Result<std::optional<std::string>> TcpFrames::hear() {
  constexpr size_t kLengthBytes = 4;
  TRY_ASSIGN(const bool has_length, fill(kLengthBytes));
  if (!has_length) return std::nullopt;
  const uint32_t length = Decoder(in_).u32();
  if (length > most_) return fail(ErrorKind::corrupt, "what another node sends is too long");
  TRY_ASSIGN(const bool has_all, fill(kLengthBytes + length));
  if (!has_all) return std::nullopt;
  std::string frame = in_.substr(kLengthBytes);
  in_.clear();
  return frame;
}

void allow_many_descriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

void reserve_descriptors(int count) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const auto last = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, static_cast<rlim_t>(count))) - 1;
  const UniqueFd any(open("/", O_PATH | O_CLOEXEC));
  if (any) const UniqueFd highest(fcntl(any.get(), F_DUPFD_CLOEXEC, last));
}

}  // namespace situla
