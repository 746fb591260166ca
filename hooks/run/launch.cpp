#include "hooks/run/launch.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/fd_path.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/process/seccomp.hpp"
#include "hooks/containers/user_range.hpp"
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
  std::vector<int> script_fds;  ///< stay open: the shell reads them by their paths in /proc
};

/// In memory, and in place of those of the image; they may be none.
struct Scripts {
  UniqueFd rc;
  UniqueFd hook;  ///< what rc runs where it would run /etc/rc.local
};

/// Variables and working directory of an environment file, and no entrypoint where it wants none.
std::string rc_hook(const ContainerSpec& spec, const Environment& container) {
  std::string hook = "[ ! -s /etc/rc.local ] || . /etc/rc.local\n";
  hook += variable_lines(spec.variables, container);
  if (!spec.workdir.empty()) hook += "cd -- " + shell_quote(spec.workdir) + " || exit 1\n";
  if (spec.entrypoint == Tristate::no) hook += "[ $# -eq 0 ] || exec \"$@\"\n";
  return hook;
}

/// The caller is inside. rc: what the user or a configuration script has in place of /etc/rc, as it is.
Result<Scripts> make_scripts(const RootDir& root, const Container& container, const ContainerSpec& spec,
                             const std::optional<std::string>& rc, LogSink& log) {
  Scripts scripts;
  if (rc) {
    TRY_ASSIGN(scripts.rc, container.temporary_file(*rc));
    return scripts;
  }
  if (spec.workdir.empty() && spec.variables.empty() && spec.entrypoint != Tristate::no) return scripts;
  const auto of_image = root.read_file("/etc/rc");
  if (!of_image) return scripts;
  TRY_ASSIGN(scripts.hook, container.temporary_file(rc_hook(spec, container.environment)));
  const auto script = redirect_rc_local(*of_image, fd_path(scripts.hook.get()));
  if (!script) {
    log.warning(
        "the image's /etc/rc never comes to /etc/rc.local: what the environment says of directory, entrypoint and "
        "variables there is ignored");
    return Scripts();
  }
  TRY_ASSIGN(scripts.rc, container.temporary_file(*script));
  return scripts;
}

/// COMPAT.md 6.7: the shell runs rc with the command as its arguments; without rc, one word with spaces is a shell
/// command.
Result<Command> command_with_shell(const RootDir& root, const Login& login, const Scripts& scripts,
                                   const std::vector<std::string>& words) {
  Command command{login.shell, {login.argv0}, login.directory, {}};
  for (const UniqueFd* script : {&scripts.rc, &scripts.hook})
    if (*script) command.script_fds.push_back(script->get());
  const std::string shell_name = login.argv0.starts_with('-') ? login.argv0.substr(1) : login.argv0;
  if (scripts.rc)
    command.arguments.push_back(fd_path(scripts.rc.get()));
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
    return fail(Error(ErrorKind::usage, "the image has no shell")
                    .with_code(ErrorCode::command)
                    .with_hint("say which program of the image to run"));
  const std::string directory = rc_directory(root.read_file("/etc/rc").value_or("")).value_or("/");
  Command command{"", words, root.open_at(directory, O_PATH | O_DIRECTORY) ? directory : "/", {}};
  if (words[0].find('/') != std::string::npos) {
    command.program = words[0];
    return command;
  }
  const std::string places = login.environment.get_or("PATH", "");
  for (const std::string_view place : split_nonempty(places, ':')) {
    command.program = std::string(place) + "/" + words[0];
    if (access(command.program.c_str(), X_OK) == 0) return command;
  }
  return fail(Error(ErrorKind::not_found, "execute " + words[0] + ": not found in the container")
                  .with_code(ErrorCode::command));
}

Error exec_command(const Command& command, const Login& login) {
  std::vector<std::string> variables = login.environment.strings();
  std::vector<char*> arguments, environment;
  for (const std::string& text : command.arguments) arguments.push_back(const_cast<char*>(text.c_str()));
  for (std::string& text : variables) environment.push_back(text.data());
  arguments.push_back(nullptr);
  environment.push_back(nullptr);
  if (chdir(command.directory.c_str()) != 0)
    return Error::from_errno(errno, "enter directory " + command.directory).with_code(ErrorCode::workdir);
  if (login.umask) (void)umask(*login.umask);
  for (const int fd : command.script_fds)
    if (fcntl(fd, F_SETFD, 0) != 0) return Error::from_errno(errno, "keep the rc script");
  close_other_fds(3, command.script_fds);
  execve(command.program.c_str(), arguments.data(), environment.data());
  return Error::from_errno(errno, "execute " + command.program).with_code(ErrorCode::command);
}

Result<void> check_words(const std::vector<std::string>& words) {
  for (const std::string& word : words)
    if (!is_variable_name(word.substr(0, word.find('='))))
      return fail(Error(ErrorKind::usage, "Invalid argument: " + printable(word))
                      .with_code(ErrorCode::option)
                      .with_hint("--env takes KEY[=VALUE]"));
  return {};
}

Result<Command> choose_command(const RootDir& root, const Login& login, const Scripts& scripts,
                               const ContainerRequest& request) {
  TRY_ASSIGN(Command command, login.shell.empty() ? command_without_shell(root, login, request.command)
                                                  : command_with_shell(root, login, scripts, request.command));
  // Where /etc/rc does not go there itself.
  const bool goes_there = scripts.hook && !login.shell.empty();
  if (!goes_there && !request.spec.workdir.empty()) command.directory = request.spec.workdir;
  return command;
}

}  // namespace

Result<std::vector<ContainerEdits>> plan_start(ContainerRequest request, HookUse use, LogSink& log) {
  TRY(check_words(request.start.environment));
  request.writable = false;
  TRY_ASSIGN(request.range, range_wish(request));
  TRY(enter_own_namespaces(request, log));
  return plan_in_container(request, use, log);
}

Result<int> start_container(ContainerRequest request, LogSink& log) {
  std::optional<std::string> script;
  if (!request.start.rc.empty()) {
    TRY_ASSIGN(script, read_file(request.start.rc));
  }
  TRY(check_words(request.start.environment));
  TRY_ASSIGN(request.range, range_wish(request));
  TRY(enter_own_namespaces(request, log));
  TRY_ASSIGN(Container container, enter_container(request, log));
  if (!script) script = std::move(container.rc);
  TRY_ASSIGN(const RootDir root, RootDir::open("/"));
  TRY_ASSIGN(const Scripts scripts, make_scripts(root, container, request.spec, script, log));
  // Who is root inside keeps what root may hold.
  TRY(restrict_privileges(request.inside_uid() == 0));
  // apt, dpkg and ssh change owners and ids, of which there is one (COMPAT.md 2.4; enroot does it for all it starts).
  // With a range they can.
  if (!request.real_root() && !request.range.wanted) TRY(install_id_filter());
  const Login login = prepare_login(root, container.environment, {request.inside_uid(), request.uid},
                                    request.config.flag("ENROOT_LOGIN_SHELL", true));
  if (script && login.shell.empty())
    return fail(Error(ErrorKind::not_found, "the image has no shell that could run the rc script")
                    .with_code(ErrorCode::command));
  TRY_ASSIGN(const Command command, choose_command(root, login, scripts, request));
  TRY(root.all_answered());
  const auto become_command = [&] { return exec_command(command, login); };
  if (request.isolation.pid) return run_as_init(become_command, log);
  return fail(become_command());
}

}  // namespace situla
