#include "plugin/node_report.hpp"

#include <unistd.h>

#include "common/base/installation.hpp"
#include "common/base/text.hpp"
#include "common/sys/process/run_program.hpp"

namespace situla {

Result<NodeReport> examine_node(const std::string& program, const std::string& slurm_conf,
                                std::chrono::milliseconds limit) {
  constexpr size_t kMaxReportBytes = size_t{16} << 10U;
  SpawnOptions options;
  options.program = program;
  options.arguments = {"situla", "doctor", "--brief"};
  options.environment = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"};
  if (!slurm_conf.empty()) options.environment.push_back("SLURM_CONF=" + slurm_conf);
  options.new_session = true;  // its probes end with it
  TRY_ASSIGN(const ProgramRun run,
             run_program(std::move(options), {.time = limit, .error_bytes = kMaxReportBytes, .together = true}));
  // One that never stops printing does not end either.
  if (run.end != ProgramRun::End::by_itself)
    return fail(Error(ErrorKind::failure, "examine this node: " + program + " doctor takes longer than " +
                                              std::to_string(limit.count() / 1000) + " s")
                    .with_code(ErrorCode::helper)
                    .with_hint("containers may work all the same; try it by hand"));
  NodeReport report;
  for (const std::string_view line : split_nonempty(run.errors, '\n')) {
    constexpr std::string_view kError = "error: ";
    if (report.images.empty())
      report.images = printable(line);
    else
      report.errors.push_back(printable(line.starts_with(kError) ? line.substr(kError.size()) : line));
  }
  // A report of errors ends with 1, a broken program in any way.
  if (report.images.empty() || run.status->signal != 0 || run.status->code > 1)
    return fail(ErrorKind::failure, "examine this node: " + program + " doctor " + run.status->text() +
                                        (report.images.empty() ? "" : ": " + report.images));
  return report;
}

Result<void> gather_inventory() {
  SpawnOptions options;
  options.program = libexec_path("situla-inventory");
  // Of a build without GPUs.
  if (access(options.program.c_str(), F_OK) != 0) return {};
  options.arguments = {"situla-inventory"};
  options.environment = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"};
  options.new_session = true;
  return spawn_detached(options);
}

}  // namespace situla
