// What does a process do whose command has to be its child, when shell, terminal and Slurm shall see no difference?
#pragma once

#include <optional>

#include "common/base/result.hpp"

namespace situla {

/// Who else tells the child. Slurm signals all processes of a step, but of a batch step the script's process alone.
enum class Signalled { alone, with_child };

/// Forks this single-threaded process, which has joined or unshared a PID namespace: only a child is in there. nullopt
/// in the child, which ends when this process is killed. In this process: waits; passes on what it is signalled
/// alone, leaves what the terminal sends to the child's own judgement, stops and goes on as the child does; then the
/// child's exit code, or death by the child's signal.
Result<std::optional<int>> stand_in_for_child(Signalled signalled = Signalled::alone);

}  // namespace situla
