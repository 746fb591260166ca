#include "hooks/cli/job/job_steps.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include <unistd.h>

#include "common/base/text.hpp"
#include "hooks/cli/commands.hpp"
#include "hooks/cli/slurm.hpp"

namespace situla::cli {
namespace {

/// Of the steps that these commands make: none to attach to.
constexpr const char* kOwnName = "situla-attach";
constexpr std::array<std::string_view, 3> kOwnNames = {kOwnName, "situla-prefetch", "situla-doctor"};

struct JobStep {
  std::string name;   ///< "12.0", "12.batch"
  std::string nodes;  ///< as Slurm writes them
};

std::string_view step_part(const JobStep& step) {
  return std::string_view(step.name).substr(step.name.rfind('.') + 1);
}

/// A number: the last one is what runs at the moment. Then the batch script, and what salloc has started.
int64_t rank(const JobStep& step) {
  const std::string_view part = step_part(step);
  if (const auto number = parse_unsigned(part)) return static_cast<int64_t>(*number);
  return part == "batch" ? -1 : part == "interactive" ? -2 : -3;
}

Error no_job(const std::string& command, const std::string& job) {
  return Error(ErrorKind::not_found, command + ": job " + printable(job) + " runs no step")
      .with_code(ErrorCode::container_not_found)
      .with_hint("squeue --me --steps shows what runs");
}

struct RunningJob {
  std::string number;
  std::vector<std::string> srun;  ///< what means it to srun
};

/// "12_3" is a task of an array, whose steps have another number; "12+1" is a part of a heterogeneous job.
Result<RunningJob> find_running(const Context& context, const std::string& command, const std::string& job) {
  TRY_ASSIGN(const ProgramRun run, run_slurm(context, "squeue",
                                             {"--noheader", "--jobs=" + job, "--states=running",
                                              "--Format=JobID:32,HetJobID:32,HetJobOffset:32"}));
  std::vector<RunningJob> found;
  for (const std::string_view line : split_nonempty(run.output, '\n')) {
    const auto words = split_words(line);
    if (words.size() < 3) continue;
    RunningJob one{std::string(words[0]), {"--jobid=" + std::string(words[0])}};
    if (parse_unsigned(words[1]).value_or(0) != 0) {
      one.srun = {"--jobid=" + std::string(words[1]), "--het-group=" + std::string(words[2])};
      // The number of a heterogeneous job is that of its first part; squeue shows the other parts, too.
      if (words[0] == job || std::string(words[1]) + "+" + std::string(words[2]) == job) return one;
    }
    found.push_back(std::move(one));
  }
  // Slurm has said what is wrong with the number.
  if (!run.success() || found.empty()) return fail(no_job(command, job));
  if (found.size() > 1)
    return fail(Error(ErrorKind::usage, command + ": " + printable(job) + " is an array of " +
                                            std::to_string(found.size()) + " jobs that run")
                    .with_code(ErrorCode::option)
                    .with_hint("say which one, as squeue shows it: " + printable(job) + "_1"));
  return found.front();
}

/// Those that tasks of the user may run in, the best one first.
Result<std::vector<JobStep>> steps_of(const Context& context, const std::string& job) {
  TRY_ASSIGN(const std::vector<std::string> lines,
             ask_slurm(context, "squeue", {"--noheader", "--steps", "--jobs=" + job, "--format=%i %N %j"}));
  std::vector<JobStep> steps;
  for (const std::string& line : lines) {
    const auto words = split_words(line);
    if (words.size() < 2) continue;
    if (words.size() > 2 && std::find(kOwnNames.begin(), kOwnNames.end(), words[2]) != kOwnNames.end()) continue;
    const JobStep shown{std::string(words[0]), std::string(words[1])};
    if (step_part(shown) != "extern") steps.push_back({job + "." + std::string(step_part(shown)), shown.nodes});
  }
  std::sort(steps.begin(), steps.end(),
            [](const JobStep& left, const JobStep& right) { return rank(left) > rank(right); });
  return steps;
}

/// The steps that may be meant, the best one first, and what means their job to srun.
struct Target {
  std::vector<JobStep> steps;
  std::vector<std::string> srun;
};

/// word: JOB or JOB.STEP.
Result<Target> find_step(const Context& context, const std::string& command, const std::string& word) {
  const auto parts = cut(word, '.');
  const std::string job(parts ? parts->first : std::string_view(word));
  const bool known = !job.empty() && job.find_first_not_of("0123456789_+") == std::string::npos;
  if (!known || (parts && parts->second.empty()))
    return fail(Error(ErrorKind::usage, "Invalid argument: " + printable(word))
                    .with_code(ErrorCode::option)
                    .with_hint("a job is meant by its number, a step by JOB.STEP, as squeue --steps shows them"));
  TRY_ASSIGN(const RunningJob running, find_running(context, command, job));
  TRY_ASSIGN(std::vector<JobStep> steps, steps_of(context, running.number));
  if (steps.empty()) return fail(no_job(command, job));
  if (!parts) return Target{std::move(steps), running.srun};
  std::string names;
  for (JobStep& step : steps) {
    if (step_part(step) == parts->second) return Target{{std::move(step)}, running.srun};
    names += (names.empty() ? "" : ", ") + step.name;
  }
  return fail(Error(ErrorKind::not_found, command + ": step " + printable(word) + " does not run")
                  .with_code(ErrorCode::container_not_found)
                  .with_hint("of this job there run: " + names));
}

/// Of a list as Slurm writes it; empty where it cannot be read.
std::vector<std::string> hostnames(const Context& context, const std::string& list) {
  return ask_slurm(context, "scontrol", {"show", "hostnames", list}).value_or(std::vector<std::string>());
}

}  // namespace

Result<JobPlace> find_job(const Context& context, const std::string& command, const std::string& word,
                          const std::string& node) {
  TRY_ASSIGN(const Target target, find_step(context, command, word));
  const JobStep& first = target.steps.front();
  JobPlace place{target.srun, "", node};
  if (node.empty()) {
    const std::vector<std::string> nodes = hostnames(context, first.nodes);
    if (nodes.empty()) return fail(no_job(command, first.name));
    place.node = nodes.front();
  }
  std::map<std::string, bool> has_node;  // by lists of nodes
  for (const JobStep& step : target.steps) {
    const auto [known, is_new] = has_node.try_emplace(step.nodes, false);
    if (is_new && !node.empty()) {
      const std::vector<std::string> nodes = hostnames(context, step.nodes);
      known->second = std::find(nodes.begin(), nodes.end(), node) != nodes.end();
    }
    if (node.empty() || known->second) place.steps += (place.steps.empty() ? "" : ",") + step.name;
  }
  if (!place.steps.empty()) return place;
  return fail(Error(ErrorKind::usage, command + ": " + printable(word) + " does not run on " + printable(node))
                  .with_code(ErrorCode::option)
                  .with_hint(first.name + " runs on " + first.nodes));
}

Result<SpawnOptions> step_beside(const Context& context, const JobPlace& place, const std::vector<std::string>& options,
                                 const std::vector<std::string>& words) {
  SpawnOptions srun;
  TRY_ASSIGN(srun.program, slurm_program(context, "srun"));
  srun.arguments = {"srun",
                    "--overlap",
                    "--whole",
                    "--nodes=1",
                    "--ntasks=1",
                    "--nodelist=" + place.node,
                    std::string("--job-name=") + kOwnName};
  srun.arguments.insert(srun.arguments.end(), place.job.begin(), place.job.end());
  srun.arguments.insert(srun.arguments.end(), options.begin(), options.end());
  srun.arguments.insert(srun.arguments.end(), words.begin(), words.end());
  srun.environment = for_another_job(context.invocation.environment).strings();
  srun.fds = {{STDIN_FILENO, STDIN_FILENO}, {STDOUT_FILENO, STDOUT_FILENO}, {STDERR_FILENO, STDERR_FILENO}};
  srun.die_with_parent = false;
  return srun;
}

}  // namespace situla::cli
