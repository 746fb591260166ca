#include "hooks/scripts/host_script.hpp"

#include <algorithm>
#include <chrono>

#include <fcntl.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/socket.hpp"
#include "hooks/scripts/definitions.hpp"

namespace situla {
namespace {

constexpr size_t kMaxFile = size_t{16} << 20U;
constexpr size_t kMaxOutput = size_t{1} << 20U;
constexpr size_t kShownLines = 20;
constexpr const char* kUsualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
constexpr const char* kLibrary = "enroot-library";  // of ours: common.sh and enroot-mount
constexpr const char* kShell = "/bin/bash";

Result<void> write_file(const std::string& path, std::string_view text) {
  TRY_ASSIGN(const UniqueFd file, open_file(path, O_WRONLY | O_CREAT | O_TRUNC, 0600));
  return write_all(file.get(), text);
}

/// Standard descriptors of the user's that are open.
std::vector<std::pair<int, int>> user_descriptors() {
  std::vector<std::pair<int, int>> fds;
  for (const auto& [source, target] : {std::pair{0, 0}, std::pair{2, 1}, std::pair{2, 2}})
    if (fcntl(source, F_GETFD) >= 0) fds.emplace_back(source, target);
  return fds;
}

}  // namespace

Error script_failed(const std::string& path, const ExitStatus& status) {
  const int code = status.signal != 0 ? 128 + status.signal : status.code;
  return {ErrorKind::failure, path + " exited with return code " + std::to_string(code)};
}

Result<Environment> ScriptHost::environment() const {
  Environment environment = host_;
  TRY_ASSIGN(const std::string library, find_installed(kLibrary));
  // A site's enroot may be gone, its configuration not.
  if (access((environment.get_or("ENROOT_LIBRARY_PATH", "") + "/common.sh").c_str(), R_OK) != 0)
    environment.set("ENROOT_LIBRARY_PATH", library);
  const std::string path = host_.get_or("PATH", "");
  environment.set("PATH", library + ":" + (path.empty() ? kUsualPath : path));
  environment.set("ENROOT_PID", std::to_string(getpid()));
  environment.set("ENROOT_ENVIRON", file("environment"));
  environment.set("ENROOT_MOUNTS", file("fstab"));
  environment.unset("BASH_ENV");
  return environment;
}

Result<void> ScriptHost::offer(const Environment& container) {
  offered_ = container;
  TRY(write_file(file("environment"), definitions_text(container)));
  if (!made_files_) TRY(write_file(file("fstab"), ""));
  made_files_ = true;
  return {};
}

Result<void> ScriptHost::take(Environment& container) {
  TRY_ASSIGN(const std::string text, read_file(file("environment"), kMaxFile));
  container = definitions_taken_back(text, offered_);
  return {};
}

Result<std::string> ScriptHost::mounts() const {
  if (!made_files_) return std::string();
  return read_file(file("fstab"), kMaxFile);
}

Result<UniqueFd> ScriptHost::output_file() const {
  if (output_ == ScriptOutput::user) return UniqueFd();
  return memory_file("situla-script");
}

Result<SpawnOptions> ScriptHost::command(const std::string& program, std::vector<std::string> arguments, int output) {
  SpawnOptions options;
  options.program = program;
  options.arguments = std::move(arguments);
  TRY_ASSIGN(const Environment variables, environment());
  options.environment = variables.strings();
  options.directory = current_directory();
  options.new_session = output_ == ScriptOutput::log;
  if (output_ == ScriptOutput::user)
    options.fds = user_descriptors();
  else
    options.fds = {{output, 1}, {output, 2}};
  return options;
}

Result<ExitStatus> ScriptHost::await(GuardedProgram& program, const std::string& name) {
  constexpr std::chrono::seconds kFirst{10}, kLongest{300};
  std::chrono::seconds patience = kFirst, waited{0};
  for (;; patience = std::min(2 * patience, kLongest)) {
    TRY_ASSIGN(const auto status, program.wait_for(patience));
    if (status) return *status;
    waited += patience;
    log_.warning(name + " is still running after " + std::to_string(waited.count()) + " s");
  }
}

void ScriptHost::report(const UniqueFd& output, LogLevel level) {
  if (!output || lseek(output.get(), 0, SEEK_SET) != 0) return;
  const auto text = read_all(output.get(), kMaxOutput);
  if (!text) return;
  const std::vector<std::string_view> lines = split_nonempty(*text, '\n');
  for (size_t i = lines.size() < kShownLines ? 0 : lines.size() - kShownLines; i < lines.size(); ++i)
    log_.write(level, printable(lines[i]));
}

Result<void> ScriptHost::run(const std::string& path, Environment& container) {
  TRY(offer(container));
  TRY_ASSIGN(const UniqueFd output, output_file());
  TRY_ASSIGN(const SpawnOptions options, command(path, {path}, output.get()));
  auto script = spawn_guarded(options, true);
  // As a shell does with a file that has no "#!" line.
  if (!script && script.error().errnum() == ENOEXEC) {
    TRY_ASSIGN(const SpawnOptions by_shell, command(kShell, {"bash", path}, output.get()));
    script = spawn_guarded(by_shell, true);
  }
  if (!script && script.error().errnum() == ENOENT)
    script.error().with_code(ErrorCode::hook).with_hint("the program that its first line names is not on this node");
  if (!script) return fail(script.error().with_code(ErrorCode::hook));
  TRY_ASSIGN(const ExitStatus status, await(*script, path));
  report(output, status.success() ? LogLevel::info : LogLevel::warning);
  if (!status.success()) return fail(script_failed(path, status).with_code(ErrorCode::hook));
  return take(container);
}

}  // namespace situla
