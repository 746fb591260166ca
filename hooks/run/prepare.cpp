#include "hooks/run/prepare.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/fd_path.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/root_dir.hpp"
#include "hooks/run/isolation.hpp"
#include "hooks/run/login.hpp"
#include "hooks/run/rc_script.hpp"

namespace situla {
namespace {

// Descriptors of the login shell. Low numbers are the scripts' own (exec 3>&1); what a shell keeps for itself it puts
// where there is none.
constexpr int kHelperFd = 93;
constexpr int kAnswerFd = 94;
constexpr int kHookFd = 95;
constexpr int kScriptFd = 96;

constexpr size_t kMaxAnswer = size_t{16} << 20U;
constexpr size_t kMaxOutput = size_t{1} << 20U;
constexpr size_t kShownLines = 10;
// The image's own rc.local counts, with its entrypoint and without.
constexpr std::string_view kImagesHook = "[ ! -s /etc/rc.local ] || . /etc/rc.local\n";
constexpr std::string_view kStop = "exec \"$@\"\n";  // before the entrypoint
constexpr const char* kEntrypointHint = "if the image has an unusual entrypoint, try using --no-container-entrypoint";
constexpr std::string_view kHelperName = "situla-printenv";

struct SessionLimits {
  const UniqueFd& helper;  ///< situla-printenv, opened on the host
  std::chrono::milliseconds time;
};

/// What login shell and /etc/rc give a task.
struct LoginSession {
  Environment environment;
  std::string directory;
};

/// The files that the shell works with; unnamed, in the stage.
struct SessionFiles {
  UniqueFd input, answer, output, hook, script;
  std::string script_path;  ///< empty: the image has no /etc/rc
};

Result<SessionFiles> make_files(const RootDir& root, const Container& container, const ContainerSpec& spec) {
  const bool entrypoint = spec.entrypoint == Tristate::yes;
  SessionFiles files;
  // As good as /dev/null, which a container need not have.
  TRY_ASSIGN(files.input, container.temporary_file());
  TRY_ASSIGN(files.answer, container.temporary_file());
  TRY_ASSIGN(files.output, container.temporary_file());
  const auto rc = root.read_file("/etc/rc");
  if (!rc) return files;
  files.script_path = "/etc/rc";
  const std::string variables = variable_lines(spec.variables, container.environment);
  if (entrypoint && variables.empty()) return files;
  if (const auto script = redirect_rc_local(*rc, fd_path(kHookFd))) {
    const std::string hook = std::string(kImagesHook) + variables + std::string(entrypoint ? "" : kStop);
    TRY_ASSIGN(files.hook, container.temporary_file(hook));
    TRY_ASSIGN(files.script, container.temporary_file(*script));
    files.script_path = fd_path(kScriptFd);
  }
  return files;
}

SpawnOptions shell_command(const Login& login, const SessionFiles& files, const UniqueFd& helper) {
  SpawnOptions options;
  options.program = login.shell;
  options.arguments.push_back(login.argv0);
  if (files.script_path.empty())
    options.arguments.insert(options.arguments.end(), {"-c", "exec \"$@\"", "sh"});
  else
    options.arguments.push_back(files.script_path);
  options.arguments.push_back(fd_path(kHelperFd));
  options.arguments.push_back(std::to_string(kAnswerFd));
  options.environment = login.environment.strings();
  options.directory = login.directory;
  options.new_session = true;
  options.fds = {{files.input.get(), 0},
                 {files.output.get(), 1},
                 {files.output.get(), 2},
                 {helper.get(), kHelperFd},
                 {files.answer.get(), kAnswerFd}};
  if (files.hook) options.fds.emplace_back(files.hook.get(), kHookFd);
  if (files.script) options.fds.emplace_back(files.script.get(), kScriptFd);
  return options;
}

/// Whatever the image's processes did to the file's offset. Only as much memory as there are bytes: touching more costs
/// time.
Result<std::string> read_from_start(const UniqueFd& file, size_t limit) {
  constexpr const char* kWhat = "read what the container's /etc/rc left";
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return fail_errno(errno, kWhat);
  std::string content(std::min(static_cast<size_t>(status.st_size), limit), '\0');
  size_t done = 0;
  while (done < content.size()) {
    const ssize_t size = pread(file.get(), content.data() + done, content.size() - done, static_cast<off_t>(done));
    if (size < 0) return fail_errno(errno, kWhat);
    if (size == 0) break;
    done += static_cast<size_t>(size);
  }
  content.resize(done);
  return content;
}

/// Shows what the shell wrote, and returns its last line.
std::string report_output(const UniqueFd& output, LogLevel level, LogSink& log) {
  const std::string text = read_from_start(output, kMaxOutput).value_or("");
  std::vector<std::string_view> lines = split_nonempty(text, '\n');
  // What the user asked to see is shown as it came.
  const std::string prefix = level == LogLevel::info ? "" : "/etc/rc: ";
  const bool all = level != LogLevel::warning || lines.size() < kShownLines;
  const size_t first = all ? 0 : lines.size() - kShownLines;
  for (size_t i = first; i < lines.size(); ++i) log.write(level, prefix + printable(lines[i]));
  return lines.empty() ? "" : printable(lines.back());
}

/// "<directory>\0NAME=VALUE\0...\0\0"; the final empty string proves that it is whole.
Result<LoginSession> parse_answer(std::string_view answer) {
  constexpr std::string_view kEnd("\0\0", 2);
  if (!answer.ends_with(kEnd) || !answer.starts_with('/')) {
    return fail(Error(ErrorKind::failure, "the container's /etc/rc ended too soon")
                    .with_code(ErrorCode::start_script)
                    .with_hint(kEntrypointHint));
  }
  const size_t end = answer.find('\0');
  LoginSession session;
  session.directory = answer.substr(0, end);
  session.environment = Environment::from_block(answer.substr(end + 1, answer.size() - end - 2));
  // Of the helper's own start, and of the shell's way to where it ended.
  session.environment.unset("_");
  session.environment.unset("OLDPWD");
  return session;
}

Result<LoginSession> run_shell(const Login& login, const SessionFiles& files, const ContainerSpec& spec,
                               const SessionLimits& limits, LogSink& log) {
  const bool entrypoint = spec.entrypoint == Tristate::yes;
  const std::string operand = "run the container's login shell " + login.shell;
  auto child = spawn(shell_command(login, files, limits.helper));
  if (utsname node{}; !child && child.error().errnum() == ENOEXEC && uname(&node) == 0)
    return fail(std::move(child)
                    .error()
                    .with_context(operand)
                    .with_code(ErrorCode::command)
                    .with_hint(std::string("the image may be for another processor than this node's (") + node.machine +
                               "): import it on such a node, or with --arch"));
  if (!child) return fail(std::move(child).error().with_context(operand).with_code(ErrorCode::command));
  constexpr std::chrono::milliseconds kPatience = std::chrono::seconds(10);
  const auto patience = std::min<std::chrono::milliseconds>(kPatience, limits.time);
  TRY_ASSIGN(std::optional<ExitStatus> status, child->wait_for(patience));
  if (!status && limits.time > patience) {
    log.warning("the image's /etc/rc, or a profile, is still running after 10 s");
    TRY_ASSIGN(status, child->wait_for(limits.time - patience));
  }
  if (status && status->success()) {
    (void)report_output(files.output, spec.entrypoint_log ? LogLevel::info : LogLevel::debug, log);
    TRY_ASSIGN(const std::string answer, read_from_start(files.answer, kMaxAnswer));
    auto session = parse_answer(answer);
    if (!session) (void)report_output(files.output, LogLevel::warning, log);
    return session;
  }
  const std::string last = report_output(files.output, LogLevel::warning, log);
  if (!status) {
    // Not only the shell but what it waits for. It is not reaped yet, so the number is still its own.
    (void)kill(-child->pid(), SIGKILL);
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limits.time).count();
    return fail(Error(ErrorKind::failure, operand + ": still running after " + std::to_string(seconds) + " seconds")
                    .with_code(ErrorCode::start_script)
                    .with_hint(entrypoint ? kEntrypointHint
                                          : "/etc/profile, ~/.profile or /etc/rc waits for something; "
                                            "ENROOT_LOGIN_SHELL=no skips the profiles"));
  }
  return fail(Error(ErrorKind::failure, operand + ": " + status->text() + (last.empty() ? "" : ": " + last))
                  .with_code(ErrorCode::start_script)
                  .with_hint(entrypoint ? kEntrypointHint : "/etc/profile, ~/.profile or /etc/rc of the image failed"));
}

/// What can be said without running anything of the image.
LoginSession without_shell(const RootDir& root, const Login& login) {
  LoginSession session;
  session.environment = login.environment;
  session.directory = "/";
  if (const auto rc = root.read_file("/etc/rc")) {
    const std::string directory = rc_directory(*rc).value_or("/");
    if (root.open_at(directory, O_PATH | O_DIRECTORY)) session.directory = directory;
  }
  return session;
}

/// The calling process is inside the container. Runs shell and rc, up to where the entrypoint would begin or, with
/// --container-entrypoint, to where the entrypoint executes its arguments; their output goes to the log (debug; the
/// last lines as warnings when they fail). An image without a shell gets what can be said without one.
Result<LoginSession> run_login_session(const Container& container, const ContainerRequest& request,
                                       const SessionLimits& limits, LogSink& log) {
  const bool entrypoint = request.spec.entrypoint == Tristate::yes;
  TRY_ASSIGN(const RootDir root, RootDir::open("/"));
  const Login login = prepare_login(root, container.environment, {request.inside_uid(), request.uid},
                                    request.config.flag("ENROOT_LOGIN_SHELL", true));
  TRY(root.all_answered());
  if (login.shell.empty()) {
    if (entrypoint) log.warning("the image has no shell: its entrypoint is not run");
    return without_shell(root, login);
  }
  if (!root.exists("/proc/self/fd")) {
    TRY(root.all_answered());
    log.warning("no /proc in the container: its login shell and /etc/rc are not run");
    return without_shell(root, login);
  }
  TRY_ASSIGN(const SessionFiles files, make_files(root, container, request.spec));
  TRY(root.all_answered());
  TRY_ASSIGN(LoginSession session, run_shell(login, files, request.spec, limits, log));
  // HOME, where a login begins, is not where tasks of an image without WORKDIR begin (COMPAT.md 1).
  if (files.script_path.empty()) session.directory = "/";
  return session;
}

/// Home directories are meant often, and are not there on their own.
std::string_view workdir_hint(const std::string& path, const ContainerRequest& request) {
  const std::string home = request.host.get_or("HOME", "");
  if (!home.empty() && (path == home || path.starts_with(home + "/"))) {
    if (request.remap_root) return "with --container-remap-root the home directory is /root in the container";
    if (!request.mount_home) return "--container-mount-home puts the home directory into the container";
  }
  return "--container-workdir is a directory inside the container; mount or create it first";
}

/// --container-workdir, relative to "/". Checked here, so that one message says it and not one per task.
Result<void> check_workdir(const ContainerRequest& request) {
  const std::string& wanted = request.spec.workdir;
  if (wanted.empty()) return {};
  const std::string path = wanted.starts_with('/') ? wanted : "/" + wanted;
  if (const auto directory = open_file(path, O_PATH | O_DIRECTORY); !directory)
    return fail(Error(directory.error())
                    .with_context("container working directory " + printable(wanted))
                    .with_code(ErrorCode::workdir)
                    .with_hint(workdir_hint(path, request)));
  return {};
}

}  // namespace

Result<Container> prepare_container(ContainerRequest& request, LogSink& log, std::chrono::milliseconds session_time) {
  TRY_ASSIGN(const std::string path, find_installed(std::string(kHelperName)));
  TRY_ASSIGN(const UniqueFd helper, open_file(path, O_PATH));
  TRY_ASSIGN(Container container, enter_container(request, log));
  TRY(restrict_privileges(request.remap_root));
  const auto begun = std::chrono::steady_clock::now();
  TRY_ASSIGN(LoginSession session, run_login_session(container, request, {helper, session_time}, log));
  container.session_time =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begun);
  container.environment = std::move(session.environment);
  container.workdir = std::move(session.directory);
  container.stage.reset();
  TRY(check_workdir(request));
  return container;
}

}  // namespace situla
