// exec: one more command in a container that runs already.
#include <climits>
#include <optional>
#include <ostream>

#include "common/base/text.hpp"
#include "common/spec/step_name.hpp"
#include "common/sys/directory.hpp"
#include "hooks/bundle/start_options.hpp"
#include "hooks/cli/commands.hpp"
#include "hooks/containers/running_processes.hpp"
#include "hooks/run/attach.hpp"

namespace situla::cli {
namespace {

/// A task of the step in a container that has a name, by the variables that Slurm gave it.
Result<std::optional<pid_t>> named_task_of(const StepName& step) {
  TRY_ASSIGN(const std::vector<std::string> names, list_directory("/proc"));
  for (const std::string& name : names) {
    const auto pid = parse_unsigned(name);
    if (!pid || *pid > INT_MAX) continue;
    const auto target = AttachTarget::open(static_cast<pid_t>(*pid));
    const auto variables = target ? target->environment() : Result<Environment>(fail(ErrorKind::not_found, ""));
    if (!variables || variables->get_or("SLURM_JOB_ID", "") != std::to_string(step.job)) continue;
    // A batch script has none.
    const std::string of_step = variables->get_or("SLURM_STEP_ID", std::to_string(kBatchStep));
    if (of_step == std::to_string(step.step) && target->is_at_work()) return static_cast<pid_t>(*pid);
  }
  return std::optional<pid_t>();
}

/// The oldest process of the container without a name that a step runs, or one of its tasks in another container.
Result<pid_t> process_of(const StepName& step) {
  TRY_ASSIGN(const std::vector<RunningProcess> processes, running_processes({}));
  for (const RunningProcess& process : processes) {
    if (!process.step || process.step->text() != step.text()) continue;
    const auto target = AttachTarget::open(process.pid);
    if (target && target->is_at_work()) return process.pid;
  }
  TRY_ASSIGN(const auto named, named_task_of(step));
  if (named) return *named;
  return fail(Error(ErrorKind::not_found, "step " + step.text() + " runs no container on this node")
                  .with_code(ErrorCode::container_not_found)
                  .with_hint("squeue --steps shows where steps run; list --fancy shows what runs here"));
}

Result<int> exec(const Context& context, const ExecRequest& options) {
  TRY(check_words(context, "exec", 2, "PID and COMMAND are"));
  ExecRequest request = options;
  TRY_ASSIGN(request.pid, process_to_join(context.words.front()));
  request.host = context.invocation.environment;
  request.command.assign(context.words.begin() + 1, context.words.end());
  context.streams.out.flush();
  return exec_in_container(request);
}

}  // namespace

Result<pid_t> process_to_join(const std::string& word) {
  if (const auto several = cut(word, ','))
    if (const auto first = parse_step_name(several->first)) {
      auto found = process_of(*first);
      return found || found.error().kind() != ErrorKind::not_found ? found
                                                                   : process_to_join(std::string(several->second));
    }
  if (const auto step = parse_step_name(word)) return process_of(*step);
  if (const auto step = step_of_scratch(word)) return process_of(*step);
  const auto pid = parse_unsigned(word);
  if (pid && *pid > 0 && *pid <= INT_MAX) return static_cast<pid_t>(*pid);
  return fail(Error(ErrorKind::usage, "Invalid argument: " + printable(word))
                  .with_code(ErrorCode::option)
                  .with_hint("a process is meant by its number, as list --fancy shows it, or by its step: JOB.STEP"));
}

void add_exec(Program& program, Actions& actions) {
  const auto [command, request] = add_command(
      program, actions, "exec", "Run a command in a running container: exec [OPTIONS] PID COMMAND [ARG...]", exec);
  command.pass_words_on();  // what follows the number belongs to the container
  add_environment_option(command, request.environment,
                         "Set a variable for the command; without a value, to the caller's");
}

}  // namespace situla::cli
