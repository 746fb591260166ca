// What does a process do whose command has to be its child, when shell, terminal and Slurm shall see no difference?
#pragma once

#include <optional>

#include "common/base/result.hpp"

namespace situla {

enum class StandInFor {
  shell,  ///< the child stays in the process group: terminal and shell reach it there; stops and goes on as the child
          ///< does
  slurm,  ///< the child leads its own, in the foreground if this process was: what is sent to the group comes once;
          ///< never stops
};

/// Forks this single-threaded process, which has joined or unshared a PID namespace: only a child is in there. nullopt
/// in the child, which ends when this process is killed. In this process: waits; passes on what it is signalled, leaves
/// what the terminal sends to the child's own judgement; then the child's exit code, or death by the child's signal.
Result<std::optional<int>> stand_in_for_child(StandInFor whom);

}  // namespace situla
