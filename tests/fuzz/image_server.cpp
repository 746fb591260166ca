#include "hooks/mount/image_server.hpp"

#include <array>
#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "common/base/unique_fd.hpp"
#include "common/sys/mount/id_maps.hpp"
#include "common/sys/socket.hpp"
#include "tests/fuzz/target.hpp"
#include "tests/fuzz/walk_image.hpp"

namespace {

using namespace situla;

template <typename T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

/// What the kernel would ask. Answers that do not fit into the socket are dropped.
class Kernel {
 public:
  Kernel() {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) std::abort();
    ours_.reset(ends[0]);
    server_.reset(ends[1]);
  }
  void ask(uint32_t opcode, uint64_t node, std::string_view body = {}) {
    fuse_in_header header{};
    header.opcode = opcode;
    header.unique = ++unique_;
    header.nodeid = node;
    header.len = static_cast<uint32_t>(sizeof header + body.size());
    const std::string packet = std::string(bytes_of(header)) + std::string(body);
    (void)send(ours_.get(), packet.data(), packet.size(), MSG_NOSIGNAL);
  }
  void ask_all(uint64_t node, const std::string& name) {
    fuse_read_in reading{};
    reading.size = 65536;
    fuse_getxattr_in attribute{};
    attribute.size = 65536;
    ask(FUSE_GETATTR, node);
    ask(FUSE_LOOKUP, node, name + '\0');
    ask(FUSE_READLINK, node);
    ask(FUSE_READ, node, bytes_of(reading));
    ask(FUSE_READDIR, node, bytes_of(reading));
    ask(FUSE_READDIRPLUS, node, bytes_of(reading));
    ask(FUSE_LISTXATTR, node, bytes_of(attribute));
    ask(FUSE_GETXATTR, node, std::string(bytes_of(attribute)) + "user.a" + '\0');
  }
  /// The mount is gone.
  void unmount() { (void)shutdown(ours_.get(), SHUT_WR); }
  [[nodiscard]] int server() const { return server_.get(); }
  /// The length in an answer's header is that of the answer.
  void check_answers() const {
    std::string answer(size_t{1} << 20U, '\0');
    for (;;) {
      const ssize_t size = recv(ours_.get(), answer.data(), answer.size(), 0);
      if (size <= 0) return;
      fuse_out_header header{};
      if (static_cast<size_t>(size) < sizeof header) std::abort();
      answer.copy(reinterpret_cast<char*>(&header), sizeof header);
      if (header.len != static_cast<size_t>(size) || header.unique == 0 || header.unique > unique_ || header.error > 0)
        std::abort();
    }
  }

 private:
  UniqueFd ours_, server_;
  uint64_t unique_ = 0;
};

}  // namespace

/// A user's image behind the FUSE server, with all its threads.
void situla::fuzz(std::string_view bytes) {
  constexpr size_t kMostInodes = 12;
  const auto file = sealed_memory("image", bytes);
  if (!file) return;
  auto image = ImageAccess::open(file->get());
  if (!image) return;
  Kernel kernel;
  fuse_init_in init{};
  init.major = FUSE_KERNEL_VERSION;
  init.minor = FUSE_KERNEL_MINOR_VERSION;
  kernel.ask(FUSE_INIT, 0, bytes_of(init));
  kernel.ask(FUSE_STATFS, FUSE_ROOT_ID);
  kernel.ask_all(FUSE_ROOT_ID, "etc");
  {
    // Another reader, so that the server's own has nothing decompressed yet.
    auto walker = ImageAccess::open(file->get());
    if (!walker) return;
    const WalkedImage walked = walk_image(*walker);
    for (size_t i = 1; i < walked.inodes.size() && i <= kMostInodes; ++i)
      kernel.ask_all(walked.inodes[i].ref + 2, walked.names.empty() ? "" : *walked.names.begin());
  }
  kernel.unmount();
  // Root of a range, to whom every owner is somebody.
  const std::string map = "0 1000 1\n1 100000 65535\n";
  const auto owners = ImageOwners::of(*image, NamespaceIds(map, map), 0, 0);
  (void)serve_requests(*image, kernel.server(), owners ? *owners : ImageOwners(1000, 1000));
  kernel.check_answers();
}
