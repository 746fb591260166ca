// What do the nodes of a step tell its srun, so that one failure is one message and one bar stands for all of them?
//
// Beside the srun of a step of several nodes runs situla-monitor (hooks/monitor), as its user, and listens. Of each
// node a task connects, as the user as well, when there is something to tell. Whoever cannot be reached, or does not
// answer, is done without: each node speaks for itself then.
//
//     a task                      srun's side
//     connects      -----------> listens
//     NodeHello     ----------->
//                   <----------- MonitorHello
//     ImportWaits and ImportProgress now and then, ImportOver, Failure
//                   <----------- Taken, of ImportOver and Failure: now the terminal is clean, or the message stands
//                   there
//     Withdrawn     -----------> of a Failure, after which it waited too long: the task says it itself
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <variant>

#include "common/base/result.hpp"
#include "common/protocol/messages.hpp"

namespace situla {

/// In srun's environment, and so in the job's: MonitorDoor::text(); gone before the task starts. The name begins with
/// SLURM_, so that --export=NONE leaves it.
constexpr const char* kMonitorVariable = "SLURM_SITULA_MONITOR";
/// Where srun runs, as slurmd says to its steps (srun(1), OUTPUT ENVIRONMENT VARIABLES).
constexpr const char* kSrunAddressVariable = "SLURM_SRUN_COMM_HOST";

/// A task shows its key first, and what it has to say only to who answers with the other one: whoever takes the port
/// when the monitor is gone does not know that, since nobody hears it who has not shown the first.
struct MonitorDoor {
  uint32_t port = 0;
  StepToken of_monitor{}, of_nodes{};

  [[nodiscard]] std::string text() const;
  static std::optional<MonitorDoor> parse(std::string_view text);
};

struct NodeHello {
  StepToken key{};
  std::string node;  ///< its name in Slurm

  static auto fields(auto& it) { return std::tie(it.key, it.node); }
};
struct MonitorHello {
  StepToken key{};

  static auto fields(auto& it) { return std::tie(it.key); }
};
/// The node has the image; nothing may be drawn any more when its task begins.
struct ImportOver {};
struct Taken {};
struct Withdrawn {};
using MonitorWord =
    std::variant<NodeHello, MonitorHello, ImportWaits, ImportProgress, ImportOver, Failure, Withdrawn, Taken>;

/// Bytes of one.
constexpr size_t kMostMonitorWord = kMaxMessageBytes;
std::string encode_monitor_word(const MonitorWord& word);
/// ErrorKind::corrupt for anything that encode_monitor_word() did not write.
Result<MonitorWord> decode_monitor_word(std::string_view bytes);

/// situla-monitor, started by srun as its user, out of its process tree. argv: NODES IMAGE, with
/// 0 for a number that is not known; environment: as srun's.
namespace monitor_fd {
constexpr int kControl = 3;   ///< to srun, whose shutdown(2) is the end: what is to be said is said at once
constexpr int kListener = 4;  ///< TCP
}  // namespace monitor_fd

}  // namespace situla
