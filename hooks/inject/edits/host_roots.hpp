// Where are the host's driver and its devices? At "/", or where the administrator says (driver_root, device_root in
// situla.toml).
#pragma once

#include <string>
#include <utility>

#include "common/sys/root_dir.hpp"

namespace situla {

struct HostRoots {
  std::string driver_path = "/", device_path = "/";  ///< absolute
  RootDir driver;                                    ///< libraries, programs, firmware and sockets of the driver
  RootDir devices;                                   ///< dev, proc and sys

  static Result<HostRoots> open(const std::string& driver_path, const std::string& device_path) {
    auto driver = RootDir::open(driver_path), devices = RootDir::open(device_path);
    for (auto* root : {&driver, &devices})
      if (!*root) return fail(std::move(*root).error().with_code(ErrorCode::site_config));
    return HostRoots{driver_path, device_path, std::move(*driver), std::move(*devices)};
  }
  /// "/usr/lib64/libcuda.so.1" beneath a root, as the host names it.
  static std::string host_path(const std::string& root_path, const std::string& path) {
    return root_path == "/" ? path : root_path + path;
  }
  /// Device numbers are only checked against the table of the kernel when the devices are the machine's own.
  [[nodiscard]] bool real_devices() const { return device_path == "/"; }
};

}  // namespace situla
