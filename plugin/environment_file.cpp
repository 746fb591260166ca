#include "plugin/environment_file.hpp"

#include <cstdlib>

#include "common/base/installation.hpp"
#include "common/base/text.hpp"
#include "common/spec/environment.hpp"
#include "common/spec/resolved_environment.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/run_program.hpp"

extern "C" char** environ;

namespace situla {
namespace {

constexpr std::chrono::milliseconds kReadLimit{60000};  // a home directory may have to be mounted

/// The code at its end goes to the end of ours.
Error told_line(std::string_view text) {
  const size_t begin = text.ends_with(']') ? text.rfind(" [") : std::string_view::npos;
  auto code = ErrorCode::none;
  if (begin != std::string_view::npos) code = error_code_from_string(text.substr(begin + 2, text.size() - begin - 3));
  if (code != ErrorCode::none) text = text.substr(0, begin);
  return Error(ErrorKind::usage, "--environment: " + printable(text)).with_code(code);
}

/// What `situla` prints of an error; other lines are about something else.
Error told_error(const std::string& name, std::string_view lines) {
  constexpr std::string_view kError = "[ERROR] ";
  constexpr std::string_view kHint = "hint: ";
  Error error(ErrorKind::usage, "--environment=" + printable(name) + ": cannot be read");
  for (const std::string_view line : split_nonempty(lines, '\n')) {
    if (line.starts_with(kError)) error = told_line(line.substr(kError.size()));
    if (line.starts_with(kHint))
      error.with_code(ErrorCode::environment_file).with_hint(printable(line.substr(kHint.size())));
  }
  return std::move(error).with_code(ErrorCode::environment_file);
}

/// By a program, which runs as the user and takes some ten milliseconds. A parser of TOML in the plugin would be in
/// slurmd and slurmstepd as well, where nothing needs it and all of it would run as root.
Result<std::string> resolve(const std::string& name) {
  constexpr size_t kMaxAnswer = size_t{128} << 10U;
  constexpr size_t kMaxErrors = 8192;
  SpawnOptions options;
  options.program = program_path();
  options.arguments = {"situla", "environment", "resolve", "--", name};
  options.environment = Environment::from_envp(environ).strings();
  options.directory = current_directory();
  auto run =
      run_program(std::move(options), {.time = kReadLimit, .output_bytes = kMaxAnswer, .error_bytes = kMaxErrors});
  if (!run)
    return fail(std::move(run)
                    .error()
                    .with_context("--environment=" + printable(name))
                    .with_code(ErrorCode::installation)
                    .with_hint("environment files are read by the program situla, which has to be installed here too"));
  if (run->end == ProgramRun::End::too_late)
    return fail(Error(ErrorKind::failure, "--environment=" + printable(name) + ": not read within a minute")
                    .with_code(ErrorCode::environment_file));
  if (!run->success()) return fail(told_error(name, run->errors));
  return std::string(trim(run->output));
}

}  // namespace

Result<void> read_environment_file(ContainerOptions& options, LogSink& log) {
  const auto name = options.environment();
  if (!name) {
    options.use(std::nullopt);
    unsetenv(kResolvedVariable);
    return {};
  }
  if (options.has_environment_of_job()) return {};
  TRY_ASSIGN(const std::string text, resolve(*name));
  TRY_ASSIGN(ResolvedEnvironment resolved, ResolvedEnvironment::from_text(text));
  for (const std::string& warning : resolved.warnings) log.warning(printable(warning));
  setenv(kResolvedVariable, text.c_str(), 1);
  options.use(std::move(resolved));
  return {};
}

Result<void> take_environment_file(ContainerOptions& options, const ContainerOptions::Lookup& lookup) {
  const auto name = options.environment();
  if (!name) return {};
  const auto text = lookup(kResolvedVariable);
  auto resolved = ResolvedEnvironment::from_text(text.value_or(""));
  if (!resolved || resolved->name != *name)
    return fail(Error(ErrorKind::failure, "--environment=" + printable(*name) + " did not reach this node")
                    .with_code(ErrorCode::environment_file)
                    .with_hint(std::string("srun, sbatch and salloc tell it in the variable ") + kResolvedVariable +
                               ", which something has changed"));
  options.use(std::move(*resolved));
  return {};
}

}  // namespace situla
