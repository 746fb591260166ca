#include "hooks/run/launch.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/fd_path.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/process/seccomp.hpp"
#include "hooks/run/enter.hpp"
#include "hooks/run/init_process.hpp"
#include "hooks/run/isolation.hpp"
#include "hooks/run/login.hpp"
#include "hooks/run/rc_script.hpp"

namespace situla {
namespace {

struct Command {
  std::string program;
  std::vector<std::string> arguments;
  std::string directory;
  int script_fd = -1;  ///< stays open: the shell reads it by its path in /proc
};

/// COMPAT.md 6.7: the shell runs rc with the command as its arguments; without rc, one word with spaces is a shell
/// command.
Result<Command> command_with_shell(const RootDir& root, const Login& login, const UniqueFd& script,
                                   const std::vector<std::string>& words) {
  Command command{login.shell, {login.argv0}, login.directory, script.get()};
  const std::string shell_name = login.argv0.starts_with('-') ? login.argv0.substr(1) : login.argv0;
  if (script)
    command.arguments.push_back(fd_path(script.get()));
  else if (root.exists("/etc/rc"))
    command.arguments.emplace_back("/etc/rc");
  else if (!words.empty() && words[0].find(' ') != std::string::npos) {
    command.arguments.insert(command.arguments.end(), {"-c", words[0], shell_name});
    command.arguments.insert(command.arguments.end(), words.begin() + 1, words.end());
    return command;
  } else if (!words.empty()) {
    command.arguments.insert(command.arguments.end(), {"-c", "exec \"$@\"", shell_name});
  }
  command.arguments.insert(command.arguments.end(), words.begin(), words.end());
  return command;
}

Result<Command> command_without_shell(const RootDir& root, const Login& login, const std::vector<std::string>& words) {
  if (words.empty())
    return fail(Error(ErrorKind::usage, "the image has no shell").with_hint("say which program of the image to run"));
  const std::string directory = rc_directory(root.read_file("/etc/rc").value_or("")).value_or("/");
  Command command{"", words, root.open_at(directory, O_PATH | O_DIRECTORY) ? directory : "/", -1};
  if (words[0].find('/') != std::string::npos) {
    command.program = words[0];
    return command;
  }
  const std::string places = login.environment.get_or("PATH", "");
  for (const std::string_view place : split_nonempty(places, ':')) {
    command.program = std::string(place) + "/" + words[0];
    if (access(command.program.c_str(), X_OK) == 0) return command;
  }
  return fail(ErrorKind::not_found, "execute " + words[0] + ": not found in the container");
}

Error exec_command(const Command& command, const Login& login) {
  std::vector<std::string> variables = login.environment.strings();
  std::vector<char*> arguments, environment;
  for (const std::string& text : command.arguments) arguments.push_back(const_cast<char*>(text.c_str()));
  for (std::string& text : variables) environment.push_back(text.data());
  arguments.push_back(nullptr);
  environment.push_back(nullptr);
  if (chdir(command.directory.c_str()) != 0) return Error::from_errno(errno, "enter directory " + command.directory);
  if (login.umask) (void)umask(*login.umask);
  if (command.script_fd >= 0 && fcntl(command.script_fd, F_SETFD, 0) != 0)
    return Error::from_errno(errno, "keep the rc script");
  close_other_fds(3, command.script_fd >= 0 ? std::vector<int>{command.script_fd} : std::vector<int>{});
  execve(command.program.c_str(), arguments.data(), environment.data());
  return Error::from_errno(errno, "execute " + command.program);
}

Result<void> check_words(const std::vector<std::string>& words) {
  for (const std::string& word : words)
    if (!is_variable_name(word.substr(0, word.find('='))))
      return fail(Error(ErrorKind::usage, "Invalid argument: " + printable(word)).with_hint("--env takes KEY[=VALUE]"));
  return {};
}

Result<Command> choose_command(const RootDir& root, const Login& login, const UniqueFd& script,
                               const std::vector<std::string>& words) {
  return login.shell.empty() ? command_without_shell(root, login, words)
                             : command_with_shell(root, login, script, words);
}

}  // namespace

Result<std::vector<ContainerEdits>> plan_start(ContainerRequest request, HookUse use, LogSink& log) {
  TRY(check_words(request.start.environment));
  request.writable = false;
  TRY(enter_own_namespaces(request));
  return plan_in_container(request, use, log);
}

Result<int> start_container(ContainerRequest request, LogSink& log) {
  std::optional<std::string> script;
  if (!request.start.rc.empty()) {
    TRY_ASSIGN(script, read_file(request.start.rc));
  }
  TRY(check_words(request.start.environment));
  TRY(enter_own_namespaces(request));
  TRY_ASSIGN(Container container, enter_container(request, log));
  if (!script) script = std::move(container.rc);
  UniqueFd script_file;
  if (script) {
    TRY_ASSIGN(script_file, container.temporary_file(*script));
  }
  // Who is root inside keeps what root may hold.
  TRY(restrict_privileges(request.inside_uid() == 0));
  // apt, dpkg and ssh change owners and ids, of which there is one (COMPAT.md 2.4; enroot does it for all it starts).
  if (!request.real_root()) TRY(install_id_filter());
  TRY_ASSIGN(const RootDir root, RootDir::open("/"));
  const Login login = prepare_login(root, container.environment, {request.inside_uid(), request.uid},
                                    request.config.flag("ENROOT_LOGIN_SHELL", true));
  TRY_ASSIGN(const Command command, choose_command(root, login, script_file, request.command));
  TRY(root.all_answered());
  const auto become_command = [&] { return exec_command(command, login); };
  if (request.isolation.pid) return run_as_init(become_command, log);
  return fail(become_command());
}

}  // namespace situla
