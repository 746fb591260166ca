// How does an image become one file that runs by itself, where neither Situla nor enroot is installed? COMPAT.md 3
// (bundle).
#pragma once

#include <string>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "hooks/config/enroot_config.hpp"

namespace situla {

struct BundleRequest {
  std::string image;        ///< path of a squashfs file
  std::string output;       ///< path of the bundle
  std::string target;       ///< directory for --keep; $VARIABLES in it are those of whoever runs it
  std::string description;  ///< one line, or empty
  bool user_files = false;  ///< also the user's hooks.d, mounts.d and environ.d, not only the site's
  bool checksum = false;    ///< verified at every start
  bool replace = false;
};

/// The file appears when it is complete and synced. ErrorKind::corrupt "Invalid image format" for what is no image.
Result<void> make_bundle(const BundleRequest& request, const EnrootConfig& config, LogSink& log);

}  // namespace situla
