// Which mounts.d and environ.d files apply to this container? The site's, with the built-in ones that it has no file
// of the same name for; then the user's.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "hooks/config/enroot_config.hpp"

namespace situla {

struct SiteFile {
  std::string path;  ///< for messages; "built-in/10-system.fstab" for ours
  std::string text;
};

/// mounts.d/*.fstab of $ENROOT_SYSCONF_PATH, then of $ENROOT_CONFIG_PATH. A site whose files mount /proc has a whole
/// set of its own; else the built-in files hold beside them, but those that it has files of the same name for.
Result<std::vector<SiteFile>> mount_files(const EnrootConfig& config);
/// environ.d/*.env in the same order; the built-in file holds unless the site has one of its name.
Result<std::vector<SiteFile>> environment_files(const EnrootConfig& config);

}  // namespace situla
