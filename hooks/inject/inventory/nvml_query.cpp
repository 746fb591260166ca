#include "hooks/inject/inventory/nvml_query.hpp"

#include "common/sys/process/run_program.hpp"

namespace situla::nvidia {
namespace {

constexpr size_t kMaxAnswerBytes = size_t{4} << 20U;
constexpr const char* kWhat = "the answer of NVIDIA's management library";

Result<NvmlAnswer> parse(const std::string& text, const ExitStatus& status) {
  if (text.empty()) return fail(ErrorKind::failure, "ask NVIDIA's management library: situla-nvml " + status.text());
  TRY_ASSIGN(const auto json, parse_json(text, kWhat));
  TRY_ASSIGN(auto report, JsonReader::object<NvmlReport>(json, kWhat));
  if (!report.error.empty())
    return fail(ErrorKind::failure, "ask NVIDIA's management library: " + printable(report.error));
  return std::move(report.answer);
}

}  // namespace

Result<NvmlAnswer> query_nvml(const std::string& program, const std::string& library, std::chrono::milliseconds limit) {
  SpawnOptions options;
  options.program = program;
  options.arguments = {program, library};
  RunLimits limits;
  limits.time = limit;
  limits.output_bytes = kMaxAnswerBytes;
  TRY_ASSIGN(const ProgramRun run, run_program(std::move(options), limits));
  if (run.end == ProgramRun::End::too_much_output)
    return fail(ErrorKind::corrupt, std::string("read ") + kWhat + ": too long");
  if (run.end != ProgramRun::End::by_itself)
    return fail(ErrorKind::failure, "wait for NVIDIA's management library: it does not answer");
  return parse(run.output, *run.status);
}

}  // namespace situla::nvidia
