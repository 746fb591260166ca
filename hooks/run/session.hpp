// Which environment and directory do the login shell and /etc/rc give a task? Really run, with a program of ours in the
// end.
#pragma once

#include <chrono>
#include <string>

#include <sys/types.h>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/spec/environment.hpp"
#include "hooks/run/login.hpp"

namespace situla {

/// situla-printenv, opened on the host.
Result<UniqueFd> open_session_helper();

struct SessionRequest {
  const UniqueFd& stage;   ///< room for temporary files
  const UniqueFd& helper;  ///< from open_session_helper()
  LoginIdentity identity;
  bool login = true;            ///< ENROOT_LOGIN_SHELL
  bool entrypoint = false;      ///< --container-entrypoint: rc goes on to the image's entrypoint
  bool entrypoint_log = false;  ///< what both of them print is the user's to see
  std::chrono::milliseconds time{60000};
};

struct Session {
  Environment environment;
  std::string directory;
};

/// The calling process is inside the container. Runs shell and rc, up to where the entrypoint would begin or to where
/// the entrypoint executes its arguments; their output goes to the log (debug; the last lines as warnings when they
/// fail). An image without a shell gets what can be said without one.
Result<Session> run_session(const Environment& environment, const SessionRequest& request, LogSink& log);

}  // namespace situla
