#include "hooks/request/user_command.hpp"

#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/process/run_program.hpp"
#include "common/sys/socket.hpp"

namespace situla {

Result<CommandOutput> run_for_output(SpawnOptions options, std::string_view input, int input_fd,
                                     std::chrono::milliseconds time) {
  TRY_ASSIGN(const UniqueFd data, sealed_memory("input", input));
  options.fds = {{data.get(), input_fd}};
  RunLimits limits;
  limits.time = time;
  TRY_ASSIGN(ProgramRun run, run_program(std::move(options), limits));
  if (run.end == ProgramRun::End::too_much_output)
    return fail(ErrorKind::failure, "the command printed more than 64 KiB");
  if (run.end == ProgramRun::End::too_late)
    return fail(ErrorKind::failure, "the command took more than " +
                                        std::to_string(std::chrono::duration_cast<std::chrono::seconds>(time).count()) +
                                        " seconds");
  return CommandOutput{*run.status, std::move(run.output)};
}

}  // namespace situla
