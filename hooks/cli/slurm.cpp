#include "hooks/cli/slurm.hpp"

#include <algorithm>
#include <ostream>

#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/process/held_signals.hpp"

namespace situla::cli {

Environment without_filters(Environment environment) {
  const Environment all = environment;
  for (const auto& [name, value] : all.entries())
    if (name.starts_with("SQUEUE_") || name.starts_with("SINFO_")) environment.unset(name);
  return environment;
}

Environment for_another_job(Environment environment) {
  constexpr std::string_view kOfCluster[] = {"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_CLUSTERS"};
  const Environment all = environment;
  for (const auto& [name, value] : all.entries())
    if (name.starts_with("SLURM_") &&
        std::find(std::begin(kOfCluster), std::end(kOfCluster), name) == std::end(kOfCluster))
      environment.unset(name);
  return for_plain_step(environment);
}

Result<std::string> slurm_program(const Context& context, const std::string& program) {
  std::string path = find_program(program, context.invocation.environment.get_or("PATH", ""));
  if (!path.empty()) return path;
  return fail(Error(ErrorKind::not_found, "there is no program " + program + " on PATH")
                  .with_code(ErrorCode::slurm)
                  .with_hint("run it where jobs are submitted"));
}

Result<ProgramRun> run_slurm(const Context& context, const std::string& program, std::vector<std::string> words) {
  constexpr size_t kMostOutput = size_t{16} << 20U;
  SpawnOptions options;
  TRY_ASSIGN(options.program, slurm_program(context, program));
  options.arguments = std::move(words);
  options.arguments.insert(options.arguments.begin(), program);
  options.environment = without_filters(for_plain_step(context.invocation.environment)).strings();
  options.fds = {{STDERR_FILENO, STDERR_FILENO}};
  // A killed srun would leave its job: it is told to end, and given the time to take the job back.
  options.die_with_parent = false;
  options.new_session = true;
  context.streams.out.flush();
  const HeldSignals signals;
  TRY_ASSIGN(ProgramRun run,
             run_program(std::move(options),
                         {.time = std::nullopt, .output_bytes = kMostOutput, .grace = kSrunGrace, .cancelled = [&] {
                            return signals.came();
                          }}));
  if (run.end == ProgramRun::End::cancelled || signals.came()) return fail(ErrorKind::cancelled, "interrupted");
  return run;
}

Result<std::vector<std::string>> ask_slurm(const Context& context, const std::string& program,
                                           std::vector<std::string> words) {
  TRY_ASSIGN(const ProgramRun run, run_slurm(context, program, std::move(words)));
  if (!run.success()) return fail(Error(ErrorKind::failure, program + " failed").with_code(ErrorCode::slurm));
  std::vector<std::string> lines;
  for (const std::string_view line : split_nonempty(run.output, '\n')) lines.emplace_back(trim(line));
  return lines;
}

}  // namespace situla::cli
