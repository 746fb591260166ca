// How do processes of one node talk? SOCK_SEQPACKET unix sockets that carry messages, descriptors and the peer's
// identity.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"

namespace situla {

struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
};

struct Packet {
  std::string bytes;
  std::vector<UniqueFd> fds;
};

/// Listening SOCK_SEQPACKET socket with a kernel-chosen abstract address (autobind, unix(7)): no file to leave behind.
struct Listener {
  UniqueFd fd;
  std::string address;  ///< as in sun_path, leading NUL included; pass to connect_to()
};
Result<Listener> listen_abstract();
/// The same with a path, which may lie in any network namespace; of at most 107 bytes, so name it beneath
/// /proc/self/fd.
Result<UniqueFd> listen_at(std::string_view path);
/// An address of listen_abstract(), or a path.
Result<UniqueFd> connect_to(std::string_view address);
Result<UniqueFd> accept_from(int listener);            ///< non-blocking, close-on-exec
Result<std::pair<UniqueFd, UniqueFd>> socket_pair();   ///< SOCK_SEQPACKET, close-on-exec
Result<PeerCredentials> peer_credentials(int socket);  ///< SO_PEERCRED: fixed at connect()/listen() time
/// One packet; fds are duplicated by the kernel. MSG_NOSIGNAL. Wait::no: errnum EAGAIN when the other side does not
/// read, also on a socket whose flags somebody else may set, because he holds it as well.
enum class Wait { no, yes };
Result<void> send_packet(int socket, std::string_view bytes, const std::vector<int>& fds = {}, Wait wait = Wait::yes);
/// What the other end has not read yet, as it is counted against the room for it (SIOCOUTQ); 0 where nobody can tell.
size_t unread_bytes(int socket);
/// Until there is something to receive, or the stream has ended. ErrorKind::failure after that time.
Result<void> wait_for_packet(int socket, std::chrono::milliseconds limit);
/// Nobody is at the other end any more.
bool has_hung_up(int socket);
/// One packet of at most max_bytes with at most 16 fds; nullopt at end of stream. A truncated packet is
/// ErrorKind::corrupt (its descriptors are closed). Received descriptors are close-on-exec. errnum EAGAIN on a
/// non-blocking socket.
Result<std::optional<Packet>> receive_packet(int socket, size_t max_bytes);

/// The bytes of one packet; what descriptors came with it the kernel lets go of, and none ever becomes ours. For
/// senders that are not trusted: the close of a descriptor is an act (FUSE_FLUSH waits for the sender's file system,
/// and no signal ends that), the loss of one in flight is not. Does not wait: errnum EAGAIN. Leave::there: the packet
/// stays, descriptors and all, for whoever gets the socket.
enum class Leave { nothing, there };
Result<std::optional<std::string>> receive_bytes(int socket, size_t max_bytes, Leave leave = Leave::nothing);

/// A parcel: descriptors on their way from one process of a user to another of his, while root decides who that is.
/// Root keeps `out`, which it never reads, and hands it on.
struct Parcel {
  UniqueFd in, out;
};
Result<Parcel> make_parcel();
Result<void> put_into_parcel(int in, const std::vector<int>& fds);
/// The last ones that were put in. ErrorKind::not_found: none were. Leave::there looks at the first and takes nothing
/// out.
Result<std::vector<UniqueFd>> take_from_parcel(int out, Leave leave = Leave::nothing);

/// An empty memory file that grows as it is written, e.g. for the messages of a helper. Close-on-exec.
Result<UniqueFd> memory_file(std::string_view name);
/// bytes become all of its content. Not if it is sealed.
Result<void> write_memory(int fd, std::string_view bytes);
/// Nobody changes it any more (F_SEAL_WRITE|SHRINK|GROW|SEAL). An error while somebody has it mapped for writing.
Result<void> seal_memory(int fd);
/// A sealed memfd holding bytes, offset 0; for payloads larger than a packet.
Result<UniqueFd> sealed_memory(std::string_view name, std::string_view bytes);
/// Content of a descriptor from offset 0, at most limit bytes; does not move the offset (pread). For memfds: verifies
/// that size and seals cannot change under the reader, ErrorKind::corrupt if they can.
Result<std::string> read_sealed_memory(int fd, size_t limit);

}  // namespace situla
