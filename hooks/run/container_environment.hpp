// Which variables does a container start with? COMPAT.md 6.1, and what it may know of the job's (COMPAT.md 2).
#pragma once

#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/spec/environment.hpp"
#include "common/sys/root_dir.hpp"
#include "hooks/config/enroot_config.hpp"

namespace situla {

/// The job's environment as a container may be prepared with it: without the names that COMPAT.md 2 (last paragraph)
/// removes. The caller forces SLURM_JOB_UID and SLURM_JOB_GID.
Environment preparation_environment(const Environment& job);

/// COMPAT.md 2.1: LANG, LANGUAGE and LC_ALL go unless named in --container-env.
Environment without_host_language(const Environment& job, const std::vector<std::string>& keep);

/// Image /etc/environment, then site and user files.
Result<Environment> assemble_environment(const RootDir& root, const EnrootConfig& config, const Environment& expansion);

/// `-e` words: NAME takes the host's value, NAME=VALUE is used as it is (but see add_definition()).
void add_words(Environment& environment, const std::vector<std::string>& words, const Environment& host);

/// ContainerSpec::variables of an environment file. Their references mean what the container has before the first of
/// them, else what the host has: PATH, which no host passes on, is the image's. ErrorKind::usage names the variable.
Result<void> add_file_variables(Environment& environment, const std::vector<std::string>& variables,
                                const Environment& host);

/// --container-env: the host's values of these names, unchanged; names that it lacks or has empty keep the image's
/// value.
Environment kept_variables(const Environment& host, const std::vector<std::string>& names);

}  // namespace situla
