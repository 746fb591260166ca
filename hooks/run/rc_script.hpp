// What does an image's /etc/rc do, and how is it run without the image's entrypoint? COMPAT.md section 5.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/spec/environment.hpp"

namespace situla {

/// The script with every mention of /etc/rc.local replaced by `hook`, so that where it would run the site's commands it
/// runs ours. With `exec "$@"` as those commands it stops before the entrypoint: this is how pyxis does it, there by
/// writing to /etc/rc.local itself. nullopt: the script never comes to /etc/rc.local, and runs as it is.
std::optional<std::string> redirect_rc_local(std::string_view script, std::string_view hook);

/// Shell lines that give ContainerSpec::variables of an environment file the values that `container` has of them: a
/// login shell's profile may have set others, as Debian's does with PATH. What rc does after /etc/rc.local comes later.
std::string variable_lines(const std::vector<std::string>& variables, const Environment& container);

/// The directory that the script changes to, for images without a shell: the argument of its first `cd`. nullopt: none.
std::optional<std::string> rc_directory(std::string_view script);

}  // namespace situla
