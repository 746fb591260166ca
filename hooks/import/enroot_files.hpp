// What do /etc/rc, /etc/fstab and /etc/environment of an image say? COMPAT.md section 5.
#pragma once

#include <string>
#include <string_view>

#include "hooks/registry/manifest.hpp"

namespace situla {

/// `uri`: where the image came from, "docker://registry/repository:tag@digest", for the provenance comment.
std::string make_rc(const ImageConfig& config, std::string_view uri);
std::string make_fstab(const ImageConfig& config);
std::string make_environment(const ImageConfig& config);
/// /etc/rc sources /etc/rc.local. An image's own one is not meant for that (Debian's ends with "exit 0"), so enroot
/// replaces it by a comment, and so do we.
std::string make_rc_local();

}  // namespace situla
