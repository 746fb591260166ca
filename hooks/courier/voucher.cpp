#include "hooks/courier/voucher.hpp"

#include <chrono>

#include <unistd.h>

#include "common/base/base64.hpp"
#include "common/base/text.hpp"
#include "common/base/wire.hpp"
#include "common/sys/socket.hpp"

namespace situla {
namespace {

constexpr WireForm kForm{
    .what = "voucher", .version = 0x53560002, .most_bytes = 4096, .most_text = 1024, .nul_in_text = false};
constexpr size_t kMostOutput = size_t{32} << 10U;
constexpr const char* kDirectories = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";
constexpr const char* kHint = "distribute = \"sbcast\" needs MUNGE on every node: see 'situla doctor'";
/// munged of this node has decoded it before: it says of a step what it said then (steps of one host's several slurmd).
constexpr uint64_t kReplayed = 17;

Result<ProgramRun> run_munge(const char* program, std::vector<std::string> options, std::string_view input) {
  constexpr std::chrono::seconds kLimit{10};
  SpawnOptions run;
  run.program = find_program(program, kDirectories);
  if (run.program.empty())
    return fail(Error(ErrorKind::not_found, std::string("there is no program ") + program)
                    .with_code(ErrorCode::installation)
                    .with_hint(kHint));
  run.arguments = std::move(options);
  run.arguments.insert(run.arguments.begin(), program);
  TRY_ASSIGN(const UniqueFd file, sealed_memory("situla-voucher", input));
  run.fds = {{file.get(), STDIN_FILENO}};
  run.no_new_privileges = true;
  return run_program(std::move(run), {.time = kLimit, .output_bytes = kMostOutput, .error_bytes = 1024});
}

Error failed(const char* program, const ProgramRun& run) {
  const std::string why = printable(trim(run.errors));
  return Error(ErrorKind::denied, std::string(program) + ": " + (why.empty() ? "it failed" : why))
      .with_code(ErrorCode::installation)
      .with_hint(kHint);
}

/// "UID:   60790", in its order
std::optional<uint64_t> number_of(std::string_view output, std::string_view key) {
  for (const std::string_view line : split_nonempty(output, '\n'))
    if (line.starts_with(key) && line.substr(key.size()).starts_with(':'))
      return parse_unsigned(trim(line.substr(key.size() + 1)));
  return std::nullopt;
}

}  // namespace

Result<std::string> sign(const Voucher& voucher) {
  const std::string bytes = encode_base64(to_wire(voucher, kForm));
  TRY_ASSIGN(const ProgramRun run, run_munge("munge", {"--restrict-uid=" + std::to_string(geteuid())}, bytes));
  if (!run.success() || run.output.empty()) return fail(failed("munge", run));
  return run.output;
}

Result<Voucher> check_signed(std::string_view credential, const std::string& step, uid_t uid) {
  TRY_ASSIGN(const ProgramRun run, run_munge("unmunge", {"--numeric", "--keys=STATUS,UID"}, credential));
  return check_decoded(run, step, uid);
}

Result<Voucher> check_decoded(const ProgramRun& run, const std::string& step, uid_t uid) {
  // What it says of the credential, an empty line, what the credential holds.
  const size_t end = run.output.find("\n\n");
  if (run.end != ProgramRun::End::by_itself || end == std::string::npos) return fail(failed("unmunge", run));
  const std::string_view said = std::string_view(run.output).substr(0, end);
  const auto status = number_of(said, "STATUS"), signer = number_of(said, "UID");
  if (!status || (*status != 0 && *status != kReplayed)) return fail(failed("unmunge", run));
  if (!signer || *signer != geteuid())
    return fail(Error(ErrorKind::denied, "uid " + (signer ? std::to_string(*signer) : std::string("?")) +
                                             " has signed it, not the service user")
                    .with_code(ErrorCode::installation)
                    .with_hint("the service user needs the same uid on all nodes"));
  const auto bytes = decode_base64(trim(std::string_view(run.output).substr(end + 2)));
  if (!bytes) return fail(ErrorKind::corrupt, "it holds no voucher");
  TRY_ASSIGN(Voucher voucher, from_wire<Voucher>(*bytes, kForm));
  if (voucher.step != step || voucher.uid != uid)
    return fail(ErrorKind::denied, "it is for step " + printable(voucher.step) + " of uid " +
                                       std::to_string(voucher.uid) + ", and this is step " + step + " of uid " +
                                       std::to_string(uid));
  return voucher;
}

}  // namespace situla
