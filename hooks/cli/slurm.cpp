#include "hooks/cli/slurm.hpp"

#include <algorithm>
#include <ostream>

#include <unistd.h>

#include "common/base/text.hpp"

namespace situla::cli {
namespace {

/// Without what a batch script's own options, and variables, say of its containers.
Environment without_containers(Environment environment) {
  constexpr std::string_view kOfContainers[] = {"SITULA_CONTAINER_", "PYXIS_CONTAINER_", "SLURM_SITULA_CONTAINER_",
                                                "_SLURM_SPANK_OPTION_situla_", "_SLURM_SPANK_OPTION_pyxis_"};
  const Environment all = environment;
  for (const auto& [name, value] : all.entries())
    if (starts_with_one_of(name, kOfContainers)) environment.unset(name);
  return environment;
}

}  // namespace

Environment for_another_job(Environment environment) {
  constexpr std::string_view kOfCluster[] = {"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_CLUSTERS"};
  const Environment all = environment;
  for (const auto& [name, value] : all.entries())
    if (name.starts_with("SLURM_") &&
        std::find(std::begin(kOfCluster), std::end(kOfCluster), name) == std::end(kOfCluster))
      environment.unset(name);
  return without_containers(std::move(environment));
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
  options.environment = without_containers(context.invocation.environment).strings();
  options.fds = {{STDERR_FILENO, STDERR_FILENO}};
  context.streams.out.flush();
  return run_program(std::move(options), {.time = std::nullopt, .output_bytes = kMostOutput});
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
