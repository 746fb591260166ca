// Which mounts.d and environ.d files apply to this container? The site's, or the built-in ones where it has none; then
// the user's.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "hooks/run/enroot_config.hpp"

namespace situla {

struct SiteFile {
  std::string path;  ///< for messages; "built-in 10-system.fstab" for ours
  std::string text;
};

/// mounts.d/*.fstab of $ENROOT_SYSCONF_PATH (the built-in files when that directory does not exist), then of
/// $ENROOT_CONFIG_PATH. Site files of which none has a line for /proc come after the built-in ones.
Result<std::vector<SiteFile>> mount_files(const EnrootConfig& config);
/// environ.d/*.env in the same order.
Result<std::vector<SiteFile>> environment_files(const EnrootConfig& config);

}  // namespace situla
