// The commands for the node's image store: root's become the service user, who alone may look into it; users ask at its
// socket. On a node without that user they are about the caller's own store.
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/spec/site_config.hpp"
#include "common/sys/fd_path.hpp"
#include "common/sys/file.hpp"
#include "common/sys/identity.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/users.hpp"
#include "hooks/cli/commands.hpp"
#include "hooks/run/container_environment.hpp"
#include "hooks/store/own_store.hpp"
#include "hooks/store/store_socket.hpp"

namespace situla::cli {
namespace {

/// In the child. Only an error returns. No owner: the store is the caller's.
Error run_as(const std::optional<Identity>& owner, const SpawnOptions& options) {
  if (owner && geteuid() != owner->uid)
    if (const auto became = become(*owner); !became) return became.error();
  return execute(options);
}

/// arguments: those of options.
Result<int> run_program(const std::optional<Identity>& owner, SpawnOptions options) {
  TRY_ASSIGN(options.program, find_installed("situla-store"));
  options.environment = {"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8"};
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) options.fds.emplace_back(fd, fd);
  TRY_ASSIGN(Child child, fork_child());
  if (!child) {
    const std::string text = "[ERROR] " + run_as(owner, options).text() + "\n";
    (void)write_all(STDERR_FILENO, text);
    _exit(1);
  }
  TRY_ASSIGN(const ExitStatus status, child.wait());
  if (status.signal != 0)
    return fail(Error(ErrorKind::failure, "situla-store " + status.text()).with_code(ErrorCode::helper));
  return status.code;
}

std::vector<std::string> program_words(const std::string& command, const std::string& store,
                                       std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"situla-store", command, "--store", store});
  return arguments;
}

/// On a node without the service user.
Result<int> run_on_own_store(const Context& context, const std::string& command, std::vector<std::string> arguments,
                             const std::string& service_user) {
  constexpr int kStore = 3;  // in the program
  // As steps have it, whose environment does not say where the cache is.
  TRY_ASSIGN(const EnrootConfig config,
             EnrootConfig::load(preparation_environment(context.invocation.environment), context.log));
  TRY_ASSIGN(const OwnStore own, OwnStore::open(config));
  if (geteuid() == 0)
    context.log.warning("there is no user \"" + service_user +
                        "\" on this node: each user keeps his images himself, and these are root's own");
  SpawnOptions options;
  options.arguments = program_words(command, fd_path(kStore), std::move(arguments));
  options.fds = {{own.fd(), kStore}};
  return run_program(std::nullopt, std::move(options));
}

/// For a user, who gets to see what is his.
Result<void> ask_store(const std::vector<std::string>& words, const std::string& service_user) {
  const auto socket = store_socket::ask(store_socket::CommandWanted{words});
  if (!socket && socket.error().kind() == ErrorKind::not_found)
    return fail(Error(ErrorKind::denied, words[0] + ": the node's image store belongs to the user " + service_user)
                    .with_code(ErrorCode::denied)
                    .with_hint("run it as root; where situla-store.socket is enabled, users see and remove what is "
                               "theirs"));
  if (!socket) return fail(socket.error());
  for (;;) {
    TRY_ASSIGN(const auto answer, store_socket::receive(socket->get()));
    if (const auto* said = std::get_if<store_socket::Said>(&answer.message)) {
      TRY(write_all(STDOUT_FILENO, said->text));
      continue;
    }
    const auto* ended = std::get_if<store_socket::Ended>(&answer.message);
    if (ended == nullptr) return fail(ErrorKind::corrupt, "the node's store sent a message out of turn");
    if (ended->text.empty()) return {};
    return fail(ended->error());
  }
}

}  // namespace

Result<int> run_store_program(const Context& context, const std::string& command, std::vector<std::string> arguments) {
  const std::string settings = SITULA_SYSCONF_DIR "/situla.toml";
  TRY_ASSIGN(const SiteConfig config, SiteConfig::load(settings));
  auto service = identity_of_user(config.service_user);
  if (!service && service.error().kind() == ErrorKind::not_found)
    return run_on_own_store(context, command, std::move(arguments), config.service_user);
  if (!service) return fail(std::move(service).error());
  if (geteuid() != 0 && geteuid() != service->uid) {
    arguments.insert(arguments.begin(), command);
    TRY(ask_store(arguments, config.service_user));
    return 0;
  }
  SpawnOptions options;
  options.arguments = program_words(command, config.store_path, std::move(arguments));
  return run_program(std::move(*service), std::move(options));
}

}  // namespace situla::cli
