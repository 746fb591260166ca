// How does an image file become a block device? A read-only loop device that the kernel frees with its last user.
#pragma once

#include <string>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"

namespace situla {

/// LOOP_CONFIGURE with LO_FLAGS_READ_ONLY | LO_FLAGS_AUTOCLEAR: the device vanishes when the last mount and descriptor
/// do.
class LoopDevice {
 public:
  /// backing_fd: O_RDONLY. label: below 64 bytes, for count(). Retries when another process takes the free device first
  /// (EBUSY).
  static Result<LoopDevice> attach(int backing_fd, const std::string& label);
  /// How many devices of this machine have the label and are in use, by whatever mount or descriptor.
  static size_t count(const std::string& label);
  [[nodiscard]] const std::string& path() const { return path_; }  ///< "/dev/loop7"
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  LoopDevice(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  std::string path_;
  UniqueFd fd_;
};

}  // namespace situla
