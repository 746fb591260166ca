#include "plugin/node_report.hpp"

#include <array>
#include <csignal>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "common/base/installation.hpp"
#include "common/base/text.hpp"
#include "common/sys/process/process.hpp"

namespace situla {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kMaxReportBytes = size_t{16} << 10U;

std::chrono::milliseconds left_until(Clock::time_point end) {
  return std::max(std::chrono::milliseconds(0), std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()));
}

/// To its end, or what there is when the time is over or there is too much: the program's end is looked at separately.
std::string read_until(int fd, Clock::time_point end) {
  std::string text;
  std::array<char, 4096> buffer{};
  while (text.size() < kMaxReportBytes) {
    pollfd wait{fd, POLLIN, 0};
    const int ready = poll(&wait, 1, static_cast<int>(left_until(end).count()));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) break;
    const ssize_t size = read(fd, buffer.data(), buffer.size());
    if (size <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(size));
  }
  return text;
}

}  // namespace

Result<NodeReport> examine_node(const std::string& program, const std::string& slurm_conf,
                                std::chrono::milliseconds limit) {
  const auto end = Clock::now() + limit;
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return fail_errno(errno, "create a pipe");
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  SpawnOptions options;
  options.program = program;
  options.arguments = {"situla", "doctor", "--brief"};
  options.environment = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"};
  if (!slurm_conf.empty()) options.environment.push_back("SLURM_CONF=" + slurm_conf);
  options.fds = {{writer.get(), STDOUT_FILENO}, {writer.get(), STDERR_FILENO}};
  options.new_session = true;
  TRY_ASSIGN(Child child, spawn(options));
  writer.reset();
  const std::string text = read_until(reader.get(), end);
  TRY_ASSIGN(const auto status, child.wait_for(left_until(end)));
  if (!status) {
    (void)kill(-child.pid(), SIGKILL);  // its probes, too
    return fail(Error(ErrorKind::failure, "examine this node: " + program + " doctor takes longer than " +
                                              std::to_string(limit.count() / 1000) + " s")
                    .with_hint("containers may work all the same; try it by hand"));
  }
  NodeReport report;
  for (const std::string_view line : split_nonempty(text, '\n')) {
    constexpr std::string_view kError = "error: ";
    if (report.images.empty())
      report.images = printable(line);
    else
      report.errors.push_back(printable(line.starts_with(kError) ? line.substr(kError.size()) : line));
  }
  // A report of errors ends with 1, a broken program in any way.
  if (report.images.empty() || status->signal != 0 || status->code > 1)
    return fail(ErrorKind::failure, "examine this node: " + program + " doctor " + status->text() +
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
