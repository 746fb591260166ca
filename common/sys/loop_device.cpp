#include "common/sys/loop_device.hpp"

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/sys/file.hpp"
#include "common/sys/kernel.hpp"

namespace situla {
namespace {

constexpr int kAttempts = 64;
constexpr unsigned kLoopMajor = 7;

/// /dev/loopN may not exist yet (no devtmpfs, or a private /dev): the number says which device it is.
Result<UniqueFd> open_device(const std::string& path, unsigned number) {
  auto fd = open_file(path, O_RDONLY);
  if (fd || fd.error().errnum() != ENOENT) return fd;
  if (mknod(path.c_str(), S_IFBLK | 0600, makedev(kLoopMajor, number)) != 0 && errno != EEXIST)
    return fail_errno(errno, "create " + path);
  return open_file(path, O_RDONLY);
}

/// 0 or an errno; EBUSY means that somebody else was faster.
int configure(int device, int backing_fd) {
  kernel::LoopConfig config{};
  config.fd = static_cast<uint32_t>(backing_fd);
  config.info.lo_flags = LO_FLAGS_READ_ONLY | LO_FLAGS_AUTOCLEAR;
  if (ioctl(device, kernel::kLoopConfigure, &config) == 0) return 0;
  if (errno != EINVAL && errno != ENOTTY) return errno;
  // Before Linux 5.8 in two steps.
  if (ioctl(device, LOOP_SET_FD, backing_fd) != 0) return errno;
  loop_info64 info{};
  info.lo_flags = LO_FLAGS_READ_ONLY | LO_FLAGS_AUTOCLEAR;
  if (ioctl(device, LOOP_SET_STATUS64, &info) == 0) return 0;
  const int errnum = errno;
  (void)ioctl(device, LOOP_CLR_FD, 0);
  return errnum;
}

}  // namespace

Result<LoopDevice> LoopDevice::attach(int backing_fd) {
  auto control = open_file("/dev/loop-control", O_RDWR);
  if (!control) return fail(std::move(control).error().with_hint("modprobe loop"));
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const int number = ioctl(control->get(), LOOP_CTL_GET_FREE);
    if (number < 0) return fail_errno(errno, "find a free loop device");
    std::string path = "/dev/loop" + std::to_string(number);
    TRY_ASSIGN(UniqueFd device, open_device(path, static_cast<unsigned>(number)));
    const int errnum = configure(device.get(), backing_fd);
    if (errnum == 0) return LoopDevice(std::move(path), std::move(device));
    if (errnum != EBUSY) return fail_errno(errnum, "attach image to " + path);
  }
  return fail_errno(EBUSY, "attach image to a loop device: " + std::to_string(kAttempts) + " attempts");
}

}  // namespace situla
