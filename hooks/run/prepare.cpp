#include "hooks/run/prepare.hpp"

#include <fcntl.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "hooks/run/enter.hpp"
#include "hooks/run/session.hpp"

namespace situla {
namespace {

/// --container-workdir, relative to "/". Checked here, so that one message says it and not one per task.
Result<void> check_workdir(const std::string& wanted) {
  if (wanted.empty()) return {};
  const std::string path = wanted.starts_with('/') ? wanted : "/" + wanted;
  if (const auto directory = open_file(path, O_PATH | O_DIRECTORY); !directory)
    return fail(Error(directory.error())
                    .with_context("container working directory " + printable(wanted))
                    .with_hint("--container-workdir is a directory inside the container; mount or create it first"));
  return {};
}

}  // namespace

Result<PreparedContainer> prepare_container(PrepareRequest request, const EnrootConfig& config, LogSink& log) {
  const bool remap_root = request.remap_root;
  const LoginIdentity identity{remap_root ? 0 : request.host_uid, request.host_uid};
  const ContainerSpec spec = request.spec;
  ContainerExtras extras;
  extras.isolation = request.isolation;
  TRY_ASSIGN(const UniqueFd helper, open_session_helper());
  TRY_ASSIGN(EnteredContainer entered, enter_container(std::move(request), extras, config, log));
  TRY(restrict_privileges(remap_root));
  SessionRequest session_request{entered.stage, helper, identity, config.flag("ENROOT_LOGIN_SHELL", true)};
  session_request.entrypoint = spec.entrypoint == Tristate::yes;
  session_request.entrypoint_log = spec.entrypoint_log;
  TRY_ASSIGN(Session session, run_session(entered.environment, session_request, log));

  PreparedContainer prepared;
  TRY(check_workdir(spec.workdir));
  prepared.workdir = std::move(session.directory);
  prepared.environment = std::move(session.environment);
  prepared.root_kind = std::move(entered.root_kind);
  prepared.changes = std::move(entered.changes);
  prepared.server = std::move(entered.server);
  if (entered.scratch) {
    prepared.scratch_name = entered.scratch.name();
    prepared.scratch_path = entered.scratch.path();
    prepared.scratch_parent = entered.scratch.keep();
  }
  return prepared;
}

}  // namespace situla
