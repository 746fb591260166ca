#include "hooks/run/prepare.hpp"

#include <fcntl.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "hooks/run/enter.hpp"
#include "hooks/run/session.hpp"

namespace situla {
namespace {

/// --container-workdir or what rc left; relative to "/". Checked here, so that one message says it and not one per
/// task.
Result<std::string> choose_workdir(const std::string& wanted, const std::string& session) {
  if (wanted.empty()) return session;
  std::string path = wanted.starts_with('/') ? wanted : "/" + wanted;
  if (const auto directory = open_file(path, O_PATH | O_DIRECTORY); !directory)
    return fail(Error(directory.error())
                    .with_context("container working directory " + printable(wanted))
                    .with_hint("--container-workdir is a directory inside the container; mount or create it first"));
  return path;
}

}  // namespace

Result<PreparedContainer> prepare_container(PrepareRequest request, const EnrootConfig& config, LogSink& log) {
  const bool remap_root = request.remap_root;
  const LoginIdentity identity{remap_root ? 0 : request.host_uid, request.host_uid};
  const std::string workdir = request.spec.workdir;
  TRY_ASSIGN(const UniqueFd helper, open_session_helper());
  TRY_ASSIGN(EnteredContainer entered, enter_container(std::move(request), {}, config, log));
  TRY(restrict_privileges(remap_root));
  const SessionRequest session_request{entered.stage, helper, identity, config.flag("ENROOT_LOGIN_SHELL", true)};
  TRY_ASSIGN(Session session, run_session(entered.environment, session_request, log));

  PreparedContainer prepared;
  TRY_ASSIGN(prepared.workdir, choose_workdir(workdir, session.directory));
  prepared.environment = std::move(session.environment);
  prepared.environment.set("PWD", prepared.workdir);
  prepared.server = std::move(entered.server);
  if (entered.scratch) {
    prepared.scratch_name = entered.scratch.name();
    prepared.scratch_path = entered.scratch.path();
    prepared.scratch_parent = entered.scratch.keep();
  }
  return prepared;
}

}  // namespace situla
