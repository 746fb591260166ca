// Which environment and directory do the login shell and /etc/rc give a task? Really run, with a program of ours in the
// end.
#pragma once

#include <chrono>
#include <string>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/spec/environment.hpp"
#include "hooks/run/enter.hpp"

namespace situla {

/// situla-printenv, opened on the host.
Result<UniqueFd> open_session_helper();

/// What login shell and /etc/rc of an image may take.
constexpr std::chrono::milliseconds kLoginSessionTime{60000};

struct SessionLimits {
  const UniqueFd& helper;  ///< from open_session_helper()
  std::chrono::milliseconds time = kLoginSessionTime;
};

struct LoginSession {
  Environment environment;
  std::string directory;
};

/// The calling process is inside the container. Runs shell and rc, up to where the entrypoint would begin or, with
/// --container-entrypoint, to where the entrypoint executes its arguments; their output goes to the log (debug; the
/// last lines as warnings when they fail). An image without a shell gets what can be said without one.
Result<LoginSession> run_login_session(const Container& container, const ContainerRequest& request,
                                       const SessionLimits& limits, LogSink& log);

}  // namespace situla
