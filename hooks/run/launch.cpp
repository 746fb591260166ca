#include "hooks/run/launch.hpp"

#include <climits>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/private_directory.hpp"
#include "common/sys/process.hpp"
#include "common/sys/seccomp.hpp"
#include "hooks/mount/image_mount.hpp"
#include "hooks/run/config_script.hpp"
#include "hooks/run/enter.hpp"
#include "hooks/run/init_process.hpp"
#include "hooks/run/login.hpp"
#include "hooks/run/rc_script.hpp"

namespace situla {
namespace {

/// ENROOT_RUNTIME_PATH: covered by a tmpfs of our own namespace as soon as there is one.
Result<UniqueFd> open_stage(const std::string& path) {
  TRY_ASSIGN(PrivateDirectory stage, PrivateDirectory::open_or_make(path, "ENROOT_RUNTIME_PATH"));
  return std::move(stage).take_fd();
}

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
    command.arguments.push_back("/proc/self/fd/" + std::to_string(script.get()));
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

Error become(const Command& command, const Login& login) {
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

PrepareRequest prepare_request(StartRequest& request, const EnrootConfig& config, LogSink& log) {
  PrepareRequest prepare;
  prepare.spec = std::move(request.spec);
  prepare.host = std::move(request.host);
  prepare.root = std::move(request.root);
  prepare.host_uid = geteuid();
  prepare.host_gid = getegid();
  prepare.remap_root = wants_remap_root(prepare.spec, config);
  prepare.devices = read_device_settings(log);
  prepare.stage = config.runtime_path();
  // A relative mount source is meant from here; PWD may be stale or missing.
  std::string here(PATH_MAX, '\0');
  if (getcwd(here.data(), here.size()) != nullptr) prepare.host.set("PWD", here.c_str());
  if (prepare.root.kind == RootSource::Kind::image) prepare.scratch_name = random_name("situla-start.");
  return prepare;
}

}  // namespace

std::string mount_argument_line(std::string_view argument) {
  std::string line;
  for (const char c : argument) {
    if (c == ':')
      line += ' ';
    else if (c == ' ')
      line += "\\040";
    else
      line += c;
  }
  return line;
}

namespace {

/// What `start` adds to what a step has too.
ContainerExtras extras_of(StartRequest& request, const EnrootConfig& config) {
  ContainerExtras extras;
  for (const std::string& mount : request.mounts) extras.mounts.push_back(mount_argument_line(mount));
  extras.environment = std::move(request.environment);
  extras.command = request.command;
  extras.configuration = request.configuration;
  extras.script_output = ScriptOutput::user;
  extras.isolation = wanted_isolation(request.isolation, config);
  extras.changes_in_memory = true;
  extras.scratch_parent = config.temp_path();
  return extras;
}

Result<void> check_words(const std::vector<std::string>& words) {
  for (const std::string& word : words)
    if (!is_variable_name(word.substr(0, word.find('='))))
      return fail(Error(ErrorKind::usage, "Invalid argument: " + printable(word)).with_hint("--env takes KEY[=VALUE]"));
  return {};
}

Result<Command> choose_command(const Login& login, const UniqueFd& script, const std::vector<std::string>& words) {
  TRY_ASSIGN(const RootDir root, RootDir::open("/"));
  return login.shell.empty() ? command_without_shell(root, login, words)
                             : command_with_shell(root, login, script, words);
}

Result<void> enter_namespaces_for(const PrepareRequest& prepare, const Isolation& isolation,
                                  const EnrootConfig& config) {
  TRY_ASSIGN(const UniqueFd stage, open_stage(prepare.stage));
  return enter_namespaces(
      {isolation, !is_superuser(config), prepare.remap_root, prepare.host_uid, prepare.host_gid, prepare.stage}, stage);
}

Result<int> start(StartRequest request, const EnrootConfig& config, LogSink& log) {
  std::string script;
  if (request.rc) {
    TRY_ASSIGN(script, read_file(*request.rc));
  }
  TRY(check_words(request.environment));
  const ContainerExtras extras = extras_of(request, config);
  PrepareRequest prepare = prepare_request(request, config, log);
  const bool superuser = is_superuser(config);
  const LoginIdentity identity{prepare.remap_root ? 0 : prepare.host_uid, prepare.host_uid};
  TRY(enter_namespaces_for(prepare, extras.isolation, config));
  TRY_ASSIGN(EnteredContainer entered, enter_container(std::move(prepare), extras, config, log));
  // Only an extracted tree is on disk here; its own child removes it.
  (void)entered.scratch.keep();
  UniqueFd script_file;
  if (!request.rc && entered.rc) script = *entered.rc;
  if (request.rc || entered.rc) {
    TRY_ASSIGN(script_file, temporary_file(entered.stage, script));
  }
  // Who is root inside keeps what root may hold.
  TRY(restrict_privileges(identity.inside == 0));
  // apt, dpkg and ssh change owners and ids, of which there is one (COMPAT.md 2.4; enroot does it for all it starts).
  if (!superuser) TRY(install_id_filter());
  TRY_ASSIGN(const RootDir root, RootDir::open("/"));
  const Login login = prepare_login(root, entered.environment, identity, config.flag("ENROOT_LOGIN_SHELL", true));
  TRY_ASSIGN(const Command command, choose_command(login, script_file, request.command));
  const auto become_command = [&] { return become(command, login); };
  if (extras.isolation.pid) return run_as_init(become_command, log);
  return fail(become_command());
}

}  // namespace

Result<ContainerEdits> plan_devices(StartRequest request, const EnrootConfig& config, LogSink& log) {
  TRY(check_words(request.environment));
  const ContainerExtras extras = extras_of(request, config);
  PrepareRequest prepare = prepare_request(request, config, log);
  prepare.spec.writable = Tristate::no;
  TRY(enter_namespaces_for(prepare, extras.isolation, config));
  return plan_in_container(std::move(prepare), extras, config, log);
}

Result<int> start_container(StartRequest request, const EnrootConfig& config, LogSink& log) {
  if (!request.configuration) return start(std::move(request), config, log);
  TRY_ASSIGN(const EnrootConfig with_script, with_directives(config, *request.configuration, log));
  return start(std::move(request), with_script, log);
}

}  // namespace situla
