// attach: a command, or a shell, in the container of a step that runs, from wherever jobs are submitted. A step of the
// job beside it, which runs `exec` on the node.
#include <ostream>

#include <unistd.h>

#include "hooks/cli/commands.hpp"
#include "hooks/cli/job/job_steps.hpp"

namespace situla::cli {
namespace {

struct AttachOptions {
  std::string node;
};

Result<int> attach(const Context& context, const AttachOptions& options) {
  TRY(check_words(context, "attach", 1, "JOB is"));
  TRY_ASSIGN(const JobPlace place, find_job(context, "attach", context.words.front(), options.node));
  std::vector<std::string> of_srun;
  if (isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1) of_srun.emplace_back("--pty");
  std::vector<std::string> words = {"situla", "exec", place.steps};
  if (context.words.size() == 1)
    words.insert(words.end(), {"sh", "-c", kShellInside});
  else
    words.insert(words.end(), context.words.begin() + 1, context.words.end());
  TRY_ASSIGN(const SpawnOptions srun, step_beside(context, place, of_srun, words));
  context.streams.out.flush();
  return fail(execute(srun));
}

}  // namespace

void add_attach(Program& program, Actions& actions) {
  const auto [command, options] =
      add_command(program, actions, "attach",
                  "A shell in the container of a running job: attach [OPTIONS] JOB[.STEP] [COMMAND [ARG...]]", attach);
  command.pass_words_on();  // what follows the job belongs to the container
  command.option("-w,--node", options.node, "Node of the step (default: its first)").value("NODE");
}

}  // namespace situla::cli
