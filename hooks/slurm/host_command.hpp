// What is run on the host for a command that was typed in a container? Its words, with what each path among them means.
//
//   read     the container's file, opened there and handed over: a batch script, --multi-prog, --input, --bbf, lists of
//            nodes (a value with a '/'), --export-file, what sbcast sends
//   written  the host's, by the mounts that both have; an error where it has none: --output, --error, --chdir, the
//            input of batch jobs, a bundle (--container), --prolog and --epilog, where sbcast sends to
//
// Of an srun in the same container, --chdir is a directory of the container. Options of Situla's (--container-image,
// --container-mounts, --environment) mean the host's paths, as outside.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "hooks/slurm/messages.hpp"

namespace situla {

/// The number of HostCommand::files[0] in the command.
constexpr int kFirstFile = 10;

/// The container, as seen from the proxy.
struct ContainerFiles {
  /// For reading. Relative paths begin at the client's working directory.
  std::function<Result<UniqueFd>(const std::string& path)> open;
  /// The host's path of a directory; nullopt: it has none. An error: there is no such directory.
  std::function<Result<std::optional<std::string>>(const std::string& path)> host_path;
};

struct HostCommand {
  std::vector<std::string> arguments;  ///< without the command's name
  std::string directory;               ///< on the host; empty: the working directory inside has no place there
  std::vector<UniqueFd> files;         ///< for its descriptors from kFirstFile on
  /// srun that is told nothing else.
  bool same_container = false;
  std::string workdir;  ///< of its tasks, inside; absolute
  /// salloc: what runs inside; salloc itself gets `arguments` and, behind them, a program that asks for it.
  std::optional<slurm_line::Inside> inside;
};

struct TypedIn {
  bool batch = false;  ///< a batch script, which holds nothing of the job's; other steps hold what their srun asked for
  bool dropped = false;  ///< its script has dropped the image that sbatch was given: srun runs as it would outside
};
Result<HostCommand> host_command(const slurm_line::Request& request, const ContainerFiles& container,
                                 const TypedIn& where);

}  // namespace situla
