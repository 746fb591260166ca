// How does a script of the site or the user run on the host, while a container is being prepared? With the contract of
// COMPAT.md 6.3: variables, two files that it may append to, full capabilities in the user namespace, and nothing of it
// left when we are ended.
#pragma once

#include <string>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/spec/environment.hpp"
#include "common/sys/process/guarded.hpp"

namespace situla {

/// Where a script's standard output and error go. user: to this process's standard error, and its input is ours, as
/// with a command typed by hand. log: lines of the log, warnings when it fails; it is in a session of its own.
enum class ScriptOutput { log, user };

/// Common to all scripts of one container. Makes nothing until the first one runs.
class ScriptHost {
 public:
  /// stage: directory for the two files. host: expansion_environment(), what scripts see.
  ScriptHost(std::string stage, ScriptOutput output, const Environment& host, LogSink& log)
      : stage_(std::move(stage)), output_(output), host_(host), log_(log) {}

  /// Runs one script; its definitions in ENROOT_ENVIRON are in `container` afterwards. "PATH exited with return code
  /// N".
  Result<void> run(const std::string& path, Environment& container);

  /// The same in parts, for a process that does several things: the two files are written and read by offer() and
  /// take().
  Result<void> offer(const Environment& container);
  Result<void> take(Environment& container);
  /// program with arguments, running as scripts do; `output` is where it writes (ignored for ScriptOutput::user).
  Result<SpawnOptions> command(const std::string& program, std::vector<std::string> arguments, int output);
  [[nodiscard]] Result<UniqueFd> output_file() const;
  /// Until the program ends. Who waits for a step is told now and then what he waits for.
  Result<ExitStatus> await(GuardedProgram& program, const std::string& name);
  void report(const UniqueFd& output, LogLevel level);

  /// Lines of ENROOT_MOUNTS so far.
  [[nodiscard]] Result<std::string> mounts() const;
  [[nodiscard]] std::string file(const std::string& name) const { return stage_ + "/" + name; }

 private:
  Result<Environment> environment() const;

  std::string stage_;
  ScriptOutput output_;
  const Environment& host_;
  LogSink& log_;
  Environment offered_;
  bool made_files_ = false;
};

/// The exit code as a shell gives it, in enroot's words.
Error script_failed(const std::string& path, const ExitStatus& status);

}  // namespace situla
