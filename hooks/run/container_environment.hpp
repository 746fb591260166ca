// Which variables does a container start with? COMPAT.md 6.1, and what it may know of the job's (COMPAT.md 2).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "common/spec/environment.hpp"
#include "common/sys/root_dir.hpp"
#include "hooks/run/enroot_config.hpp"

namespace situla {

/// The job's environment as a container may be prepared with it: without the names that COMPAT.md 2 (last paragraph)
/// removes. The caller forces SLURM_JOB_UID and SLURM_JOB_GID.
Environment preparation_environment(const Environment& job);

/// COMPAT.md 2.1: LANG, LANGUAGE and LC_ALL go unless named in --container-env.
Environment without_host_language(const Environment& job, const std::vector<std::string>& keep);

/// What ${NAME} means in fstab, environment and environ.d files: the host's environment and enroot's configuration.
Environment expansion_environment(const Environment& host, const EnrootConfig& config, const std::string& rootfs);

/// Adds the definitions of one environment file to `environment`: ${NAME} replaced, comments, ill-formed lines and
/// ENROOT_* lines dropped, surrounding quotes removed. Later definitions win.
void add_definitions(Environment& environment, std::string_view text, const Environment& expansion);

/// Image /etc/environment, then site and user files.
Result<Environment> assemble_environment(const RootDir& root, const EnrootConfig& config, const Environment& expansion);

/// The same without replacing anything: what a script has written.
void add_literal_definitions(Environment& environment, std::string_view text);

/// The file ENROOT_ENVIRON that scripts read and append to: NAME=VALUE lines. Values of several lines stay out of it.
std::string definitions_text(const Environment& environment);
/// What the file says after scripts had it, whose text came from `before`.
Environment definitions_taken_back(std::string_view text, const Environment& before);

/// `-e` words: NAME takes the host's value, NAME=VALUE is used as it is (but see add_definitions()).
void add_words(Environment& environment, const std::vector<std::string>& words, const Environment& host);

/// --container-env: the host's values of these names, unchanged; names that it lacks or has empty keep the image's
/// value.
Environment kept_variables(const Environment& host, const std::vector<std::string>& names);

}  // namespace situla
