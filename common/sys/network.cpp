#include "common/sys/network.hpp"

#include <cstring>

#include <sys/ioctl.h>
#include <sys/socket.h>

#include <net/if.h>

#include "common/base/unique_fd.hpp"

namespace situla {

Result<void> bring_loopback_up() {
  const UniqueFd socket_fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket_fd) return fail_errno(errno, "create a socket for the loopback interface");
  ifreq request{};
  std::memcpy(request.ifr_name, "lo", sizeof "lo");
  if (ioctl(socket_fd.get(), SIOCGIFFLAGS, &request) != 0) return fail_errno(errno, "read flags of the interface lo");
  request.ifr_flags = static_cast<short>(static_cast<unsigned short>(request.ifr_flags) | IFF_UP);
  if (ioctl(socket_fd.get(), SIOCSIFFLAGS, &request) != 0) return fail_errno(errno, "bring the interface lo up");
  return {};
}

}  // namespace situla
