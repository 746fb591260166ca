// Who runs Slurm's commands for the tasks in a container? A process of the job user, from the first command on.
#pragma once

#include <optional>
#include <string>

#include "common/base/result.hpp"
#include "common/protocol/slurm_inside.hpp"
#include "common/sys/socket.hpp"
#include "plugin/broker/events/poll_set.hpp"
#include "plugin/broker/launcher.hpp"
#include "plugin/broker/step.hpp"

namespace situla {

/// RootOperation::run_slurm_commands.
class SlurmProxy {
 public:
  /// Where the commands of this step are to connect; nullopt: the site or the user wants none.
  static std::optional<SlurmProxy> prepare(const Step& step);
  /// For tasks: kSlurmInsideVariable. Empty: the address is not to be seen from a network namespace of the container's.
  [[nodiscard]] std::string door(const Isolation& container) const {
    return container.net ? std::string() : door_.text();
  }

  /// `place`: of a task; none, and nobody can have connected. `digest` of the step's image; may be empty.
  void watch(PollSet& set, const Step& step, const std::optional<TaskPlace>& place, const std::string& digest);
  /// Commands that still run are ended.
  void end();

 private:
  SlurmProxy(Listener listener, const StepToken& token);
  Result<void> start(const Step& step, const TaskPlace& place, const std::string& digest);

  SlurmDoor door_;
  UniqueFd listener_;             ///< none: no command gets in any more
  std::optional<Helper> helper_;  ///< none: no command has come yet
};

}  // namespace situla
