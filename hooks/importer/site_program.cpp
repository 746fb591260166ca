#include <array>
#include <climits>
#include <csignal>
#include <cstdlib>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/protocol/contract.hpp"
#include "common/protocol/messages.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/run_program.hpp"
#include "common/sys/socket.hpp"
#include "hooks/builder/broker_line.hpp"
#include "hooks/builder/input.hpp"
#include "hooks/importer/modes.hpp"

namespace situla {
namespace {

constexpr const char* kPyxisVersion = "0.24.0";  // whose contract COMPAT.md states
constexpr std::string_view kSquashfsMagic = "hsqs";
constexpr size_t kMaxComplaintBytes = size_t{16} << 10U;
constexpr size_t kMaxComplaintLines = 40;
constexpr const char* kWhoseProgram =
    "this cluster's images come from that program: importer= in plugstack.conf names it";

struct Call {
  std::string operation, program, runtime, job, step;
};

std::vector<std::string> program_environment(const Call& call, const BuilderData& data) {
  Environment environment = data.host;
  // Ours has the usual directories only. The job's own PATH is for the job: the program is the cluster's.
  const char* path = getenv("PATH");
  environment.set("PATH", path == nullptr ? "/usr/bin:/bin" : path);
  environment.set("PYXIS_RUNTIME_PATH", call.runtime);
  environment.set("PYXIS_VERSION", kPyxisVersion);
  environment.set("SLURM_JOB_ID", call.job);
  environment.set("SLURM_STEP_ID", call.step);
  environment.set("SLURM_JOB_UID", std::to_string(geteuid()));
  environment.set("SLURM_JOB_GID", std::to_string(getegid()));
  std::vector<std::string> words;
  for (const auto& [name, value] : environment.entries()) words.push_back(name + "=" + value);
  return words;
}

void show_complaints(const std::string& text, LogSink& log) {
  const auto lines = split_nonempty(text, '\n');
  const size_t first = lines.size() > kMaxComplaintLines ? lines.size() - kMaxComplaintLines : 0;
  for (size_t i = first; i < lines.size(); ++i) log.error("importer: " + printable(lines[i]));
}

/// Whether the broker has gone, or has closed its end because the step was cancelled.
bool broker_has_gone() {
  pollfd broker{builder_fd::kBroker, POLLRDHUP, 0};
  return poll(&broker, 1, 0) == 1;
}

/// Runs the program; a status other than 0 is an error.
Result<ProgramRun> run(const Call& call, std::vector<std::string> arguments, const BuilderData& data, LogSink& log) {
  SpawnOptions options;
  options.program = call.program;
  options.arguments = {call.program, call.operation};
  options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
  options.environment = program_environment(call, data);
  options.directory = current_directory();
  options.new_session = true;
  RunLimits limits;
  limits.error_bytes = kMaxComplaintBytes;
  limits.cancelled = broker_has_gone;
  TRY_ASSIGN(ProgramRun result, run_program(std::move(options), limits));
  if (result.success()) return result;
  if (result.end == ProgramRun::End::cancelled) return fail(ErrorKind::cancelled, "cancelled");
  if (result.end == ProgramRun::End::too_much_output) return fail(ErrorKind::corrupt, "it prints more than 64 KiB");
  show_complaints(result.errors, log);
  return fail(ErrorKind::failure, result.status->text());
}

Result<UniqueFd> open_image(const std::string& path) {
  // Not waiting: a FIFO has no end.
  TRY_ASSIGN(UniqueFd file, open_file(path, O_RDONLY | O_NONBLOCK));
  struct stat info {};
  if (fstat(file.get(), &info) != 0) return fail_errno(errno, "stat " + path);
  if (!S_ISREG(info.st_mode))
    return fail(Error(ErrorKind::corrupt, path + " is not a regular file").with_code(ErrorCode::image_file));
  std::array<char, kSquashfsMagic.size()> begin{};
  const ssize_t size = pread(file.get(), begin.data(), begin.size(), 0);
  if (size < 0) return fail_errno(errno, "read " + path);
  if (std::string_view(begin.data(), static_cast<size_t>(size)) != kSquashfsMagic)
    return fail(Error(ErrorKind::corrupt, path + " is not a squashfs file").with_code(ErrorCode::image_file));
  return file;
}

/// What it printed in the place of the path of an image.
Result<std::string> printed_path(const std::string& output) {
  const std::string_view line = std::string_view(output).substr(0, output.find('\n'));
  if (line.empty()) return fail(ErrorKind::corrupt, "it printed no path");
  if (line.size() >= PATH_MAX) return fail(ErrorKind::corrupt, "its first line is too long for a path");
  if (line.front() != '/')
    return fail(ErrorKind::corrupt,
                "its first line is not an absolute path: " + shell_quote(printable(line.substr(0, 200))));
  return std::string(line);
}

Result<UniqueFd> get_image(const Call& call, const BuilderData& data, LogSink& log) {
  const std::string& image = data.spec.image;
  const std::string uri = image.find("://") != image.npos ? image : "docker://" + image;
  TRY_ASSIGN(const ProgramRun result, run(call, {uri}, data, log));
  const auto open_printed = [&]() -> Result<UniqueFd> {
    TRY_ASSIGN(const std::string path, printed_path(result.output));
    return open_image(path);
  };
  auto file = open_printed();
  if (!file) show_complaints(result.errors, log);
  return file;
}

Result<void> get_and_send(const Call& call, LogSink& log) {
  TRY_ASSIGN(const BuilderData data, read_builder_data());
  auto file = get_image(call, data, log);
  if (!file)
    return fail(std::move(file)
                    .error()
                    .with_context(call.program + " get")
                    .with_context("failed to import docker image: " + printable(data.spec.image))
                    .with_code(ErrorCode::hook)
                    .with_hint(kWhoseProgram));
  // No manifest is known; the file is the user's own, and its name in no store.
  TRY(put_into_parcel(builder_fd::kOutput, {file->get()}));
  return send_packet(builder_fd::kBroker, encode(ImportDone{Digest{}, ""}));
}

Result<void> release(const Call& call, LogSink& log) {
  TRY_ASSIGN(const BuilderData data, read_builder_data());
  if (const auto done = run(call, {}, data, log); !done)
    return fail(Error(done.error()).with_context(call.program + " release").with_code(ErrorCode::hook));
  return {};
}

}  // namespace

int run_site_program(const std::vector<std::string>& words) {
  (void)std::signal(SIGPIPE, SIG_IGN);
  umask(022);
  BrokerLog log;
  if (words.size() != 7) return tell_failure(Error(ErrorKind::usage, "situla-importer site: wrong arguments"));
  const Call call{words[2], words[3], words[4], words[5], words[6]};
  const auto done = call.operation == "get" ? get_and_send(call, log) : release(call, log);
  return done ? 0 : tell_failure(done.error());
}

}  // namespace situla
