// How do pieces of several block devices become one? By device-mapper's target "linear", through /dev/mapper/control
// (kernel documentation, device-mapper/linear.rst; linux/dm-ioctl.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"

namespace situla {

/// All numbers count sectors of 512 bytes.
struct DmPiece {
  int device = -1;     ///< open block device
  uint64_t first = 0;  ///< of that device
  uint64_t sectors = 0;
};

/// A read-only device of pieces in their order. The kernel removes it, and lets go of the pieces, with its last mount
/// and descriptor.
class DmDevice {
 public:
  /// prefix: of its name. ErrorKind::unsupported without device-mapper.
  static Result<DmDevice> make(const std::string& prefix, const std::vector<DmPiece>& pieces);
  /// Removes those of make() with the prefix that nobody has open: their makers were killed. Nobody makes one
  /// meanwhile.
  static void remove_unused(const std::string& prefix);
  [[nodiscard]] const std::string& path() const { return path_; }  ///< "/dev/dm-3"

 private:
  DmDevice(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  std::string path_;
  UniqueFd fd_;
};

/// Whether device-mapper is there and has the target.
Result<void> dm_available();

}  // namespace situla
