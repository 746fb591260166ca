#include "hooks/inject/nvidia/nvml_query.hpp"

#include <algorithm>
#include <array>
#include <csignal>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "common/sys/process.hpp"

namespace situla::nvidia {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kMaxAnswerBytes = size_t{4} << 20U;
constexpr std::chrono::milliseconds kPatience{500};
constexpr const char* kWhat = "the answer of NVIDIA's management library";

Result<std::string> read_answer(int fd, Clock::time_point deadline) {
  std::string text;
  std::array<char, 16384> buffer{};
  while (text.size() <= kMaxAnswerBytes) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd wait{fd, POLLIN, 0};
    const int ready = poll(&wait, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) return fail_errno(errno, "wait for NVIDIA's management library");
    if (ready == 0) return fail(ErrorKind::failure, "wait for NVIDIA's management library: it does not answer");
    const ssize_t size = read(fd, buffer.data(), buffer.size());
    if (size < 0) return fail_errno(errno, std::string("read ") + kWhat);
    if (size == 0) return text;
    text.append(buffer.data(), static_cast<size_t>(size));
  }
  return fail(ErrorKind::corrupt, std::string("read ") + kWhat + ": too long");
}

/// A process that waits for a broken GPU inside the driver does not even die of SIGKILL; nobody waits for it.
void end(Child child) {
  (void)child.signal(SIGKILL);
  const auto ended = child.wait_for(kPatience);
  if (ended && !*ended) child.release();
}

Result<NvmlAnswer> parse(const std::string& text, const Result<std::optional<ExitStatus>>& status) {
  if (text.empty()) {
    const bool known = status && *status;
    return fail(ErrorKind::failure,
                "ask NVIDIA's management library: situla-nvml " + (known ? (**status).text() : "said nothing"));
  }
  TRY_ASSIGN(const auto json, parse_json(text, kWhat));
  TRY_ASSIGN(auto report, JsonReader::object<NvmlReport>(json, kWhat));
  if (!report.error.empty())
    return fail(ErrorKind::failure, "ask NVIDIA's management library: " + printable(report.error));
  return std::move(report.answer);
}

}  // namespace

Result<NvmlAnswer> query_nvml(const std::string& program, const std::string& library, std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return fail_errno(errno, "create a pipe");
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  SpawnOptions options;
  options.program = program;
  options.arguments = {program, library};
  options.fds = {{writer.get(), STDOUT_FILENO}};
  TRY_ASSIGN(Child child, spawn(options));
  writer.reset();
  const auto text = read_answer(reader.get(), deadline);
  if (!text) {
    end(std::move(child));
    return fail(text.error());
  }
  const auto status = child.wait_for(kPatience);
  if (!status || !*status) end(std::move(child));
  return parse(*text, status);
}

}  // namespace situla::nvidia
