#include "hooks/scripts/config_script.hpp"

#include <array>
#include <climits>
#include <cstdlib>

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"

namespace situla {
namespace {

constexpr int kLineFd = 98;         // of the shell; low numbers are the script's
constexpr int kSyntaxStatus = 125;  // of the shell, when the file is no bash
constexpr size_t kMaxScript = size_t{4} << 20U;

/// Reads one function name a line and answers each call with a line. The functions do not see the descriptor that this
/// goes through. They run in this very shell, so that what one sets the next one has.
constexpr std::string_view kDriver = R"(
set -euo pipefail
shopt -s lastpipe
situla_script=$1 situla_exported=$2 situla_mounts=$3 situla_rc=$4
shift 4
"${BASH}" -n "${situla_script}" 98<&- || exit 125
source "${ENROOT_LIBRARY_PATH}/common.sh"
source "${situla_script}" 98<&- >&2
/usr/bin/env -0 >"${situla_exported}" 98<&-
printf 'ready\n' >&98
while IFS= read -r -u 98 situla_call; do
  if declare -F "${situla_call}" >/dev/null; then
    case ${situla_call} in
      environ) environ >>"${ENROOT_ENVIRON}" 98<&- ;;
      hooks) hooks >&2 98<&- ;;
      mounts) mounts >"${situla_mounts}" 98<&- ;;
      rc)
        situla_text=$(declare -f rc)
        situla_text=${situla_text#*$'\n'}
        situla_text=${situla_text#*$'\n'}
        printf '%s\n' "${situla_text%$'\n'*}" >"${situla_rc}"
        ;;
    esac
  fi
  printf 'done\n' >&98
done
)";

/// What a shell sets by itself.
bool is_shells_own(std::string_view name) {
  return name == "_" || name == "SHLVL" || name == "PWD" || name == "OLDPWD" || name.starts_with("BASH");
}

Result<std::string> absolute(const std::string& path) {
  std::array<char, PATH_MAX> resolved{};
  struct stat status {};
  if (realpath(path.c_str(), resolved.data()) == nullptr || stat(resolved.data(), &status) != 0 ||
      S_ISDIR(status.st_mode))
    return fail(Error(ErrorKind::not_found, "No such file or directory: " + path).with_code(ErrorCode::enroot_config));
  return std::string(resolved.data());
}

Result<std::optional<std::string>> read_if_there(const std::string& path) {
  auto text = read_file(path, kMaxScript);
  if (text) return std::optional<std::string>(std::move(*text));
  if (text.error().kind() == ErrorKind::not_found) return std::optional<std::string>();
  return fail(std::move(text).error());
}

}  // namespace

Result<EnrootConfig> with_directives(const EnrootConfig& config, const std::string& path, LogSink& log) {
  EnrootConfig result = config;
  if (path.empty()) return result;
  TRY_ASSIGN(const std::string file, absolute(path));
  TRY_ASSIGN(const std::string text, read_file(file, kMaxScript));
  TRY(result.apply_directives(text, path, log));
  return result;
}

Result<ConfigScript> ConfigScript::start(const std::string& path, const std::vector<std::string>& command,
                                         ScriptHost& host, const Environment& container) {
  ConfigScript script(path, host);
  TRY_ASSIGN(const std::string file, absolute(path));
  TRY(host.offer(container));
  TRY_ASSIGN(script.output_, host.output_file());
  // A stream, because a shell reads byte by byte; a socket, because writing to it when the shell is gone is an error
  // only.
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return fail_errno(errno, "create a socket for the configuration script");
  script.line_.reset(ends[0]);
  const UniqueFd theirs(ends[1]);
  std::vector<std::string> arguments = {"bash",
                                        "--norc",
                                        "--noprofile",
                                        "-c",
                                        std::string(kDriver),
                                        path,
                                        file,
                                        host.file("exported"),
                                        host.file("mounts"),
                                        host.file("rc")};
  arguments.insert(arguments.end(), command.begin(), command.end());
  TRY_ASSIGN(SpawnOptions options, host.command("/bin/bash", std::move(arguments), script.output_.get()));
  options.fds.emplace_back(theirs.get(), kLineFd);
  script.given_ = Environment::from_strings(options.environment);
  TRY_ASSIGN(script.shell_, spawn_guarded(options, true));
  return script;
}

Error ConfigScript::ended(const ExitStatus& status) {
  host_->report(output_, LogLevel::warning);
  if (status.signal == 0 && status.code == kSyntaxStatus)
    return Error(ErrorKind::usage, "Invalid argument: " + path_)
        .with_code(ErrorCode::enroot_config)
        .with_hint("bash -n " + shell_quote(path_));
  if (status.success())
    return Error(ErrorKind::failure, path_ + " ended too soon: a configuration script must not exit")
        .with_code(ErrorCode::enroot_config);
  return script_failed(path_, status).with_code(ErrorCode::enroot_config);
}

/// One line from the shell, or its end; what it may have left running keeps the socket open.
Result<void> ConfigScript::await_answer() {
  constexpr int kLookAgainMs = 100;  // where there is no pidfd
  const bool sees_end = shell_.pidfd() >= 0;
  for (char byte = 0; byte != '\n';) {
    std::array<pollfd, 2> entries = {{{line_.get(), POLLIN, 0}, {shell_.pidfd(), POLLIN, 0}}};
    const int ready = poll(entries.data(), entries.size(), sees_end ? -1 : kLookAgainMs);
    if (ready < 0 && errno != EINTR) return fail_errno(errno, "wait for the configuration script");
    if ((entries[0].revents & POLLIN) != 0 && recv(line_.get(), &byte, 1, MSG_DONTWAIT) == 1) continue;
    if (entries[0].revents != 0 || entries[1].revents != 0) {
      TRY_ASSIGN(const ExitStatus status, shell_.wait());
      return fail(ended(status));
    }
    if (sees_end) continue;
    TRY_ASSIGN(const auto status, shell_.wait_for(std::chrono::milliseconds(0)));
    if (status) return fail(ended(*status));
  }
  return {};
}

Result<void> ConfigScript::call(const std::string& function) {
  const std::string line = function + "\n";
  // An error shows when the answer is missing.
  (void)send(line_.get(), line.data(), line.size(), MSG_NOSIGNAL);
  return await_answer();
}

Result<void> ConfigScript::sourced(Environment& host) {
  TRY(await_answer());  // "ready"
  TRY_ASSIGN(const std::string block, read_file(host_->file("exported"), kMaxScript));
  const Environment now = Environment::from_block(block);
  // Scripts have the directory of their library in front.
  const std::string given_path = given_.get_or("PATH", "");
  const std::string library = given_path.substr(0, given_path.find(':') + 1);
  const auto without_library = [&](std::string path) {
    const size_t at = path.find(library);
    return at == std::string::npos ? path : path.erase(at, library.size());
  };
  const auto counts = [](const std::string& name) { return is_variable_name(name) && !is_shells_own(name); };
  for (const auto& [name, value] : now.entries())
    if (counts(name) && given_.get(name) != value) host.set(name, name == "PATH" ? without_library(value) : value);
  for (const auto& [name, value] : given_.entries())
    if (counts(name) && !now.has(name)) host.unset(name);
  return {};
}

Result<void> ConfigScript::environ(Environment& container) {
  TRY(host_->offer(container));
  TRY(call("environ"));
  return host_->take(container);
}

Result<void> ConfigScript::finish() {
  line_.reset();
  TRY_ASSIGN(const ExitStatus status, host_->await(shell_, path_));
  if (!status.success()) return fail(ended(status));
  return {};
}

Result<void> ConfigScript::hooks(Environment& container) {
  TRY(host_->offer(container));
  TRY(call("hooks"));
  return host_->take(container);
}

Result<std::string> ConfigScript::mounts() {
  TRY(call("mounts"));
  TRY_ASSIGN(const auto text, read_if_there(host_->file("mounts")));
  return text.value_or("");
}

Result<std::optional<std::string>> ConfigScript::rc() {
  TRY(call("rc"));
  host_->report(output_, LogLevel::info);
  return read_if_there(host_->file("rc"));
}

}  // namespace situla
