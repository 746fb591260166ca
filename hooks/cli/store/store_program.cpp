// The commands for the node's image store: they become the service user, who alone may look into it.
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/spec/site_config.hpp"
#include "common/sys/file.hpp"
#include "common/sys/identity.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/users.hpp"
#include "hooks/cli/commands.hpp"

namespace situla::cli {
namespace {

/// In the child. Only an error returns.
Error run_as(const Identity& service, const SpawnOptions& options) {
  if (geteuid() != service.uid)
    if (const auto became = become(service); !became) return became.error();
  return execute(options);
}

}  // namespace

Result<int> run_store_program(const std::string& command, std::vector<std::string> arguments) {
  const std::string settings = SITULA_SYSCONF_DIR "/situla.toml";
  TRY_ASSIGN(const SiteConfig config, SiteConfig::load(settings));
  TRY_ASSIGN(const Identity service, identity_of_user(config.service_user));
  if (geteuid() != 0 && geteuid() != service.uid)
    return fail(
        Error(ErrorKind::denied, command + ": the node's image store belongs to the user " + config.service_user)
            .with_hint("run it as root"));
  SpawnOptions options;
  TRY_ASSIGN(options.program, find_installed("situla-store"));
  options.arguments = {"situla-store", command, "--store", config.store_path};
  options.arguments.insert(options.arguments.end(), std::make_move_iterator(arguments.begin()),
                           std::make_move_iterator(arguments.end()));
  options.environment = {"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8"};
  options.fds = {{STDOUT_FILENO, STDOUT_FILENO}, {STDERR_FILENO, STDERR_FILENO}};
  TRY_ASSIGN(Child child, fork_child());
  if (!child) {
    const std::string text = "[ERROR] " + run_as(service, options).text() + "\n";
    (void)write_all(STDERR_FILENO, text);
    _exit(1);
  }
  TRY_ASSIGN(const ExitStatus status, child.wait());
  if (status.signal != 0) return fail(ErrorKind::failure, "situla-store " + status.text());
  return status.code;
}

}  // namespace situla::cli
