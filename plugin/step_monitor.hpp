// How do the nodes of a step speak with one voice? Both ends of common/protocol/step_monitor.hpp: srun starts who
// listens, a task of each node tells him.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/protocol/step_monitor.hpp"
#include "common/spec/environment.hpp"
#include "common/sys/tcp.hpp"

namespace situla {

/// In srun, as the user: situla-monitor, for a step of several nodes.
class StepMonitor {
 public:
  /// On one of `ports` (SrunPortRange of slurm.conf); sets kMonitorVariable.
  static Result<StepMonitor> listen(std::optional<PortRange> ports);
  /// Starts the program, once. nodes: of the step; 0: not known, that of a heterogeneous one.
  Result<void> run(uint32_t nodes, const std::string& image);
  /// The step has ended: waits until the program has said what it has to say, and ended, at most `limit`.
  void finish(std::chrono::milliseconds limit) const;

 private:
  explicit StepMonitor(UniqueFd listener) : listener_(std::move(listener)) {}
  UniqueFd listener_;  ///< until the program has it
  UniqueFd control_;
};

/// On the node, in a task: the connection to it. Nothing waits for it but where it says so.
class MonitorLine {
 public:
  /// What is needed to connect, out of the job's environment. None: nobody listens.
  static std::optional<MonitorLine> of(const Environment& job);

  /// Connects at the first. Lost when that does not succeed.
  void tell(const MonitorWord& word);
  /// As wait_for_packet(). Meanwhile the connection is made, which takes a round trip, and what was told goes.
  Result<void> wait_beside(int socket, std::chrono::milliseconds limit);
  /// srun's side shows how far the step is, so this node does not.
  bool is_heard();
  /// The image is here: waits a moment until the terminal is clean, if anything was told, and hangs up.
  void end_import();
  /// False: this task has to say it itself.
  bool tell_failure(const Error& error);

 private:
  MonitorLine(MonitorDoor door, std::string address, std::string node)
      : door_(door), address_(std::move(address)), node_(std::move(node)) {}
  bool connect();
  /// Sends and hears what there is.
  void go_on();
  void hang_up();
  /// One of the flags below. What it returns.
  bool wait_for(const bool& what, std::chrono::milliseconds limit);

  MonitorDoor door_;
  std::string address_, node_;
  std::optional<TcpFrames> frames_;
  std::vector<MonitorWord> untold_;  ///< before the other side has shown its key
  bool lost_ = false, heard_ = false, taken_ = false;
};

}  // namespace situla
