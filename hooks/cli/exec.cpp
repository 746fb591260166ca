// exec: one more command in a container that runs already.
#include <climits>
#include <ostream>

#include "common/base/text.hpp"
#include "common/spec/step_name.hpp"
#include "hooks/bundle/start_options.hpp"
#include "hooks/cli/commands.hpp"
#include "hooks/containers/running_processes.hpp"
#include "hooks/run/attach.hpp"

namespace situla::cli {
namespace {

/// The oldest process of the container without a name that a step runs.
Result<pid_t> process_of(const StepName& step) {
  TRY_ASSIGN(const std::vector<RunningProcess> processes, running_processes({}));
  for (const RunningProcess& process : processes) {
    if (!process.step || process.step->text() != step.text()) continue;
    const auto target = AttachTarget::open(process.pid);
    if (target && target->is_at_work()) return process.pid;
  }
  return fail(Error(ErrorKind::not_found, "step " + step.text() + " runs no container without a name on this node")
                  .with_code(ErrorCode::container_not_found)
                  .with_hint("squeue --steps shows where steps run; list --fancy shows what runs here"));
}

/// A number, or a step.
Result<pid_t> process_of(const std::string& word) {
  if (const auto step = parse_step_name(word)) return process_of(*step);
  if (const auto step = step_of_scratch(word)) return process_of(*step);
  const auto pid = parse_unsigned(word);
  if (pid && *pid > 0 && *pid <= INT_MAX) return static_cast<pid_t>(*pid);
  return fail(Error(ErrorKind::usage, "Invalid argument: " + printable(word))
                  .with_code(ErrorCode::option)
                  .with_hint("a process is meant by its number, as list --fancy shows it, or by its step: JOB.STEP"));
}

Result<int> exec(const Context& context, const ExecRequest& options) {
  TRY(check_words(context, "exec", 2, "PID and COMMAND are"));
  ExecRequest request = options;
  TRY_ASSIGN(request.pid, process_of(context.words.front()));
  request.host = context.invocation.environment;
  request.command.assign(context.words.begin() + 1, context.words.end());
  context.streams.out.flush();
  return exec_in_container(request);
}

}  // namespace

void add_exec(CLI::App& app, Actions& actions) {
  const auto [command, request] = add_command(
      app, actions, "exec", "Run a command in a running container: exec [OPTIONS] PID COMMAND [ARG...]", exec);
  command.prefix_command();  // what follows the number belongs to the container
  add_environment_option(command, request.environment,
                         "Set a variable for the command; without a value, to the caller's");
}

}  // namespace situla::cli
