// What does a container's configuration script (`start --conf`, `batch`) say? COMPAT.md 6, last lines: directives, and
// the functions environ, mounts, hooks and rc, which run in one shell that sources the file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/sys/process/guarded.hpp"
#include "hooks/config/enroot_config.hpp"
#include "hooks/scripts/host_script.hpp"

namespace situla {

/// The configuration with the script's directives on top; as it is, without a path. "No such file or directory: PATH"
/// when there is no such script.
Result<EnrootConfig> with_directives(const EnrootConfig& config, const std::string& path, LogSink& log);

/// The shell. Each function is called at most once, in the order in which they are declared here; one that the script
/// does not define does nothing. A function that fails, and a script that exits, is an error: "PATH exited with return
/// code N".
class ConfigScript {
 public:
  /// Sources the file; "$@" is the container's command there. A script that is no bash is ErrorKind::usage.
  static Result<ConfigScript> start(const std::string& path, const std::vector<std::string>& command, ScriptHost& host,
                                    const Environment& container);

  /// First: when the file has been sourced, with what it has exported or unset in `host`, as scripts and ${NAME} in
  /// files see it from then on.
  Result<void> sourced(Environment& host);
  Result<void> environ(Environment& container);
  Result<void> hooks(Environment& container);
  Result<std::string> mounts();             ///< lines of fstab
  Result<std::optional<std::string>> rc();  ///< what the function does, as a script
  /// Lets the shell end by itself: its EXIT trap runs, and what it has begun in the background stays. Without this call
  /// it is killed with all of that.
  Result<void> finish();

 private:
  ConfigScript(std::string path, ScriptHost& host) : path_(std::move(path)), host_(&host) {}
  Result<void> call(const std::string& function);
  Result<void> await_answer();
  Error ended(const ExitStatus& status);  ///< without having been asked to

  std::string path_;
  ScriptHost* host_;
  GuardedProgram shell_;
  UniqueFd line_;
  UniqueFd output_;
  Environment given_;  ///< to the shell
};

}  // namespace situla
