// What does a process do whose command has to be its child, when shell, terminal and Slurm shall see no difference?
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "common/base/result.hpp"

namespace situla {

enum class StandInFor {
  shell,  ///< the child stays in the process group: terminal and shell reach it there; stops and goes on as the child
          ///< does
  slurm,  ///< the child leads its own, in the foreground if this process was: what is sent to the group comes once;
          ///< never stops
  slurm_group,  ///< the child keeps the group, so that what Slurm sends to it reaches what the child starts as well,
                ///< and this process is outside of it until the child has ended; slurm, if this process leads the
                ///< session
};

/// What is left to do when the child has ended. Signals that end a process do that again; those for programs are
/// ignored.
struct LastAct {
  std::vector<int> keep;           ///< descriptors; all others are closed at once, so that only the child holds them
  std::function<bool()> succeeds;  ///< false: a child that ended well did not; exit code 1
};

/// Forks this single-threaded process, because only a child is in a PID namespace it has joined, or for `last`. nullopt
/// in the child, which ends when this process is killed. In this process: waits; passes on what it is signalled, leaves
/// what the terminal sends to the child's own judgement; then the child's exit code, or death by the child's signal.
Result<std::optional<int>> stand_in_for_child(StandInFor whom, const LastAct* last = nullptr);

}  // namespace situla
