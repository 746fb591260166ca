// How do Slurm's commands reach the host from inside a container? What the plugin, the broker, the proxy and the client
// agree on; who does what: hooks/slurm/README.md.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "common/base/result.hpp"
#include "common/protocol/messages.hpp"

namespace situla {

/// Where the commands are in a container, and what is put in front of PATH there.
constexpr const char* kSlurmInsideDirectory = "/var/run/situla/slurm";
/// Beneath SITULA_LIBEXEC_DIR: what is mounted there. Each command is a link to one static program.
constexpr const char* kSlurmInsideName = "slurm";

/// Of a task: SlurmDoor::text().
constexpr const char* kSlurmInsideVariable = "SITULA_SLURM_INSIDE";
/// Of an srun that is used in a container: its specification (ContainerSpec::serialize(), base64), for tasks that are
/// not told otherwise. The name begins with SLURM_, so that --export=NONE leaves it.
constexpr const char* kSameContainerVariable = "SLURM_SITULA_SAME_CONTAINER";
/// In front of the names of the variables that such an srun has inside, for its tasks: not for itself (LD_PRELOAD), and
/// not for who makes the container (HOME). Without a name: these are all, and tasks have no others.
constexpr std::string_view kKeptPrefix = "SITULA_KEPT_";

/// What Slurm says to each command and task anew.
bool is_of_slurm(std::string_view variable);
/// The same, and what Situla and the shell do: of the task, whoever started its step.
bool is_of_task(std::string_view variable);

/// Where a step's proxy listens, and what it has to say first: the address is in /proc/net/unix for everybody, and
/// anybody may take it when the step has ended.
struct SlurmDoor {
  std::string address;  ///< Listener::address
  StepToken token{};

  [[nodiscard]] std::string text() const;
  static std::optional<SlurmDoor> parse(std::string_view text);
};

/// What the broker tells the proxy, once, in a sealed memfd.
struct SlurmProxyInput {
  StepToken token{};
  std::string programs;               ///< directory of Slurm's commands on the host
  std::vector<std::string> commands;  ///< slurm_inside of situla.toml
  std::string slurm_conf;             ///< as StepRequest::slurm_conf
  std::string directory;              ///< of the job, where relative paths of its options begin
  std::string digest;                 ///< of the image in a registry, "sha256:..."; empty: not known, or none
  bool batch = false;                 ///< the step is a batch script, which holds nothing of the job's

  static auto fields(auto& input) {
    return std::tie(input.token, input.programs, input.commands, input.slurm_conf, input.directory, input.digest,
                    input.batch);
  }
};
std::string encode_slurm_proxy_input(const SlurmProxyInput& input);
Result<SlurmProxyInput> decode_slurm_proxy_input(std::string_view bytes);

}  // namespace situla
