// How does a user log in to a container? The shell, its name, the variables and the directory that login(1) would give.
// COMPAT.md 6.7.
#pragma once

#include <optional>
#include <string>

#include <sys/types.h>

#include "common/spec/environment.hpp"
#include "common/sys/root_dir.hpp"

namespace situla {

struct LoginIdentity {
  uid_t inside = 0;   ///< uid in the container: HOME, SHELL, USER
  uid_t outside = 0;  ///< uid on the host: LOGNAME
};

struct Login {
  std::string shell;        ///< path inside the container; empty: the image has none
  std::string argv0;        ///< "-sh", or "sh" without a login
  std::string directory;    ///< HOME if it can be entered, else "/"
  Environment environment;  ///< as given, with what was absent
  std::optional<mode_t> umask;
};

/// `root` is the container's "/". Sets TERM HOME SHELL USER LOGNAME PATH (and TZ, MAIL and the locale where
/// /etc/login.defs and /etc/locale.conf ask for them) only if absent. With login = false (ENROOT_LOGIN_SHELL=no) the
/// environment is left alone.
Login prepare_login(const RootDir& root, const Environment& environment, const LoginIdentity& identity, bool login);

}  // namespace situla
