// On which terminal does the user wait, so that a long import can be shown there?
#pragma once

#include <cstdint>

#include "common/spec/container_spec.hpp"
#include "common/spec/environment.hpp"

namespace situla {

/// In srun's environment, and so in the job's, "COLUMNSxROWS"; gone before the task starts.
constexpr const char* kTerminalVariable = "SITULA_TERMINAL";

/// In srun: sets the variable when standard error is a terminal, else removes it.
void announce_terminal();
/// On the node: takes the variable out of the environment. Of the nodes of a step the first tells of an import, on the
/// terminal or in lines, and says that it is that; the others are silent.
void use_terminal(Environment& environment, uint32_t node, uint32_t nodes, ContainerSpec& spec);

}  // namespace situla
