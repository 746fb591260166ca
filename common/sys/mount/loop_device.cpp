#include "common/sys/mount/loop_device.hpp"

#include <algorithm>

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/directory.hpp"
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

/// The kernel keeps the text and does nothing with it.
loop_info64 read_only_and_labelled(const std::string& label) {
  loop_info64 info{};
  info.lo_flags = LO_FLAGS_READ_ONLY | LO_FLAGS_AUTOCLEAR;
  (void)label.copy(reinterpret_cast<char*>(info.lo_file_name), sizeof info.lo_file_name - 1);
  return info;
}

/// 0 or an errno; EBUSY means that somebody else was faster.
int configure(int device, int backing_fd, const loop_info64& wanted) {
  kernel::LoopConfig config{};
  config.fd = static_cast<uint32_t>(backing_fd);
  config.info = wanted;
  if (ioctl(device, kernel::kLoopConfigure, &config) == 0) return 0;
  if (errno != EINVAL && errno != ENOTTY) return errno;
  // Before Linux 5.8 in two steps.
  if (ioctl(device, LOOP_SET_FD, backing_fd) != 0) return errno;
  loop_info64 info = wanted;
  if (ioctl(device, LOOP_SET_STATUS64, &info) == 0) return 0;
  const int errnum = errno;
  (void)ioctl(device, LOOP_CLR_FD, 0);
  return errnum;
}

}  // namespace

Result<LoopDevice> LoopDevice::attach(int backing_fd, const std::string& label) {
  auto control = open_file("/dev/loop-control", O_RDWR);
  if (!control) return fail(std::move(control).error().with_code(ErrorCode::kernel).with_hint("modprobe loop"));
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const int number = ioctl(control->get(), LOOP_CTL_GET_FREE);
    if (number < 0) return fail_errno(errno, "find a free loop device");
    std::string path = "/dev/loop" + std::to_string(number);
    TRY_ASSIGN(UniqueFd device, open_device(path, static_cast<unsigned>(number)));
    const int errnum = configure(device.get(), backing_fd, read_only_and_labelled(label));
    if (errnum == 0) return LoopDevice(std::move(path), std::move(device));
    if (errnum != EBUSY) return fail_errno(errnum, "attach image to " + path);
  }
  return fail_errno(EBUSY, "attach image to a loop device: " + std::to_string(kAttempts) + " attempts");
}

size_t LoopDevice::count(const std::string& label) {
  const auto names = list_directory("/sys/block");
  if (!names) return 0;
  return static_cast<size_t>(std::count_if(names->begin(), names->end(), [&](const std::string& name) {
    constexpr std::string_view kName = "loop";
    const auto number = name.starts_with(kName) ? parse_unsigned(name.substr(kName.size())) : std::nullopt;
    // One without a file is in nobody's use.
    if (!number || access(("/sys/block/" + name + "/loop").c_str(), F_OK) != 0) return false;
    const auto device = open_device("/dev/" + name, static_cast<unsigned>(*number));
    loop_info64 info{};
    return device && ioctl(device->get(), LOOP_GET_STATUS64, &info) == 0 &&
           label == reinterpret_cast<const char*>(info.lo_file_name);
  }));
}

}  // namespace situla
