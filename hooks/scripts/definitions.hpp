// How are variables written in environment files and in ENROOT_ENVIRON? Lines NAME=VALUE, one syntax for image, site,
// user and scripts. COMPAT.md 6.1.
#pragma once

#include <string>
#include <string_view>

#include "common/spec/environment.hpp"
#include "hooks/config/enroot_config.hpp"

namespace situla {

/// What ${NAME} means in fstab, environment and environ.d files: the host's environment and enroot's configuration.
Environment expansion_environment(const Environment& host, const EnrootConfig& config, const std::string& rootfs);

/// Adds NAME=VALUE without the quotes around the value; ill-formed lines and ENROOT_* are dropped.
void add_definition(Environment& environment, std::string_view line);

/// Adds the definitions of one environment file to `environment`: ${NAME} replaced, comments, ill-formed lines and
/// ENROOT_* lines dropped, surrounding quotes removed. Later definitions win.
void add_definitions(Environment& environment, std::string_view text, const Environment& expansion);

/// The same without replacing anything: what a script has written.
void add_literal_definitions(Environment& environment, std::string_view text);

/// The file ENROOT_ENVIRON that scripts read and append to: NAME=VALUE lines. Values of several lines stay out of it.
std::string definitions_text(const Environment& environment);
/// What the file says after scripts had it, whose text came from `before`.
Environment definitions_taken_back(std::string_view text, const Environment& before);

}  // namespace situla
