// How do processes of several nodes talk? TCP sockets that never wait: poll(2) says when they are ready.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"

namespace situla {

/// On all addresses of this node, IPv6 too where there is any; the kernel chooses the port, or it is one of `ports`
/// that nobody has. accept_from() takes who comes.
struct TcpListener {
  UniqueFd fd;
  uint32_t port = 0;
};
struct PortRange {
  uint16_t first = 0, last = 0;  ///< both are of it
};
Result<TcpListener> listen_tcp(std::optional<PortRange> ports = std::nullopt);
/// By which other nodes may reach this one, as text, at most 8: those of its host name first (as Slurm finds it), then
/// those of its other interfaces. Loopback only where there is nothing else.
std::vector<std::string> own_addresses();
/// Those of them that are not this node's as well, such as that of a bridge which each node has; all of them where
/// there are no others.
std::vector<std::string> addresses_elsewhere(const std::vector<std::string>& addresses);
/// `address`: as text, no name. Writable when it is decided: connected().
Result<UniqueFd> begin_to_connect(const std::string& address, uint32_t port);
Result<void> connected(int socket);
/// Of who is at the other end, as begin_to_connect() takes it.
Result<std::string> peer_address(int socket);
/// Address and port of this end.
Result<std::pair<std::string, uint32_t>> local_address(int socket);

/// Whole pieces of what is sent leave at once, and an end that answers nothing for so long is an error (ms).
Result<void> set_limits(int socket, unsigned silence_ms);
/// How many bytes went; 0: none now.
Result<size_t> send_some(int socket, std::string_view bytes);
/// The same from a file, without a copy (sendfile(2)). ErrorKind::corrupt: the file ends before `offset`.
Result<uint64_t> send_some_of(int socket, int file, uint64_t offset, uint64_t most);
/// How many bytes came; 0: the other end has closed. nullopt: none now.
Result<std::optional<size_t>> receive_some(int socket, char* to, size_t most);

/// Frames of bytes on a TCP socket, without waiting: a length, and so many bytes.
class TcpFrames {
 public:
  /// most: bytes of a frame that comes.
  TcpFrames(UniqueFd socket, size_t most) : socket_(std::move(socket)), most_(most) {}
  [[nodiscard]] int fd() const { return socket_.get(); }
  /// What to wait for: POLLIN, and POLLOUT while something is to be sent.
  [[nodiscard]] short events() const;
  void say(std::string_view frame);
  /// Sends what can be sent.
  Result<void> flush();
  [[nodiscard]] bool is_flushed() const { return out_.empty(); }
  /// A whole frame, and not a byte after it; nullopt: not all of one has come. errnum EPIPE: the other end has closed.
  /// ErrorKind::corrupt: a longer one comes.
  Result<std::optional<std::string>> hear();

 private:
  Result<bool> fill(size_t bytes);
  UniqueFd socket_;
  size_t most_;
  std::string in_, out_;
};

/// As many descriptors as this process may have (RLIMIT_NOFILE).
void allow_many_descriptors();
/// The kernel's table of this process's descriptors gets room for so many, as far as it may have them. In a process of
/// several threads each time that the table grows takes a grace period of RCU, some ten milliseconds.
void reserve_descriptors(int count);

}  // namespace situla
