#include "plugin/terminal.hpp"

#include <algorithm>
#include <cstdlib>
#include <string>

#include <sys/ioctl.h>
#include <unistd.h>

#include "common/base/text.hpp"

namespace situla {

void announce_terminal() {
  winsize size{};
  const bool terminal = isatty(STDERR_FILENO) == 1 && ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  if (!terminal)
    unsetenv(kTerminalVariable);
  else
    setenv(kTerminalVariable, (std::to_string(size.ws_col) + "x" + std::to_string(size.ws_row)).c_str(), 1);
}

void use_terminal(Environment& environment, uint32_t node, uint32_t nodes, ContainerSpec& spec) {
  constexpr uint64_t kLabel = 8;  // srun --label puts the task's number before every line
  constexpr uint64_t kMost = 300;
  const std::string size = environment.get_or(kTerminalVariable, "");
  environment.unset(kTerminalVariable);
  ProgressView& view = spec.progress;
  view.silent = node != 0;
  if (view.silent) return;
  if (nodes > 1)
    view.label = environment.get_or("SLURMD_NODENAME", "this node") + ", first of " + std::to_string(nodes) + ": ";
  const auto numbers = cut(size, 'x');
  const uint64_t columns = numbers ? parse_unsigned(numbers->first).value_or(0) : 0;
  if (columns <= 2 * kLabel) return;
  view.columns = static_cast<uint32_t>(std::min(columns, kMost) - kLabel);
  view.rows = static_cast<uint32_t>(std::min(parse_unsigned(numbers->second).value_or(0), kMost));
}

}  // namespace situla
