// How does an image get from one node of a step to the others? The broker makes a directory for what Slurm's sbcast
// brings, and starts who sends and receives (hooks/courier).
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "common/base/result.hpp"
#include "plugin/broker/launcher.hpp"
#include "plugin/broker/step.hpp"

namespace situla {

/// Of a step of several nodes, from its first moment to its last: what another node sends may come at any time, and
/// its sbcast fails for all of them where one has no directory for it.
class Courier {
 public:
  /// Makes the directory: RootOperation::keep_incoming. None: the site wants none, or there is nothing to share. That
  /// it cannot be made is no error of the step: the log says so, and the registry is asked.
  static std::optional<Courier> prepare(const Step& step);

  /// When the step's cgroups are there. Once.
  Result<void> start(const Step& step);
  /// For the store program, which has --node and --nodes then; once, before start() or after it.
  UniqueFd take_store_line() { return std::move(store_line_); }
  /// Nothing of it is left. What other nodes of the step still send goes to a place where nothing is kept, until the
  /// job has ended: an sbcast fails for all nodes where it fails for one.
  void end(const Step& step);

 private:
  Courier(UniqueFd directory, UniqueFd store_line, UniqueFd courier_line)
      : directory_(std::move(directory)), store_line_(std::move(store_line)), courier_line_(std::move(courier_line)) {}
  UniqueFd directory_, store_line_, courier_line_;
  Helper helper_;
};

/// Whether the nodes of a step share what one of them imports: the site says so, or it says that they have one store,
/// and this one is on a disk of the node.
bool goes_by_sbcast(const SiteConfig& config);

/// After a killed broker: the directory of that step, if there is one. `step`: "123.0". What could not be removed
/// before `end` is root's by then, and goes when a later step ends.
void remove_incoming(const SiteConfig& config, const std::string& step, std::chrono::steady_clock::time_point end);
/// Of all steps of a job that has ended.
void remove_incoming_of(const SiteConfig& config, uint32_t job, std::chrono::steady_clock::time_point end);

}  // namespace situla
