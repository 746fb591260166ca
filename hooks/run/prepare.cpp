#include "hooks/run/prepare.hpp"

#include <fcntl.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "hooks/run/isolation.hpp"
#include "hooks/run/login_session.hpp"

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

Result<Container> prepare_container(ContainerRequest& request, LogSink& log, std::chrono::milliseconds session_time) {
  TRY_ASSIGN(const UniqueFd helper, open_session_helper());
  TRY_ASSIGN(Container container, enter_container(request, log));
  TRY(restrict_privileges(request.remap_root));
  TRY_ASSIGN(LoginSession session, run_login_session(container, request, {helper, session_time}, log));
  container.environment = std::move(session.environment);
  container.workdir = std::move(session.directory);
  container.stage.reset();
  TRY(check_workdir(request.spec.workdir));
  return container;
}

}  // namespace situla
