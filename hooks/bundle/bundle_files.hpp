// Which configuration goes into a bundle, and how is it kept there? Files with their paths and modes, and facts for
// --info.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "common/base/wire.hpp"

namespace situla {

struct BundleFile {
  std::string path;   ///< "system/mounts.d/10-system.fstab", "user/..."
  uint32_t mode = 0;  ///< octal 0777
  std::string content;

  static auto fields(auto& it) { return std::tie(it.path, it.mode, it.content); }
};

struct BundleFiles {
  std::string information;  ///< what --info prints
  std::string description;
  std::vector<BundleFile> files;

  static auto fields(auto& it) { return std::tie(it.information, it.description, it.files); }
};

/// Written and read by the same release: every bundle has its program with it.
constexpr WireForm kBundleFiles{"configuration of the bundle", 1, size_t{64} << 20U};

}  // namespace situla
