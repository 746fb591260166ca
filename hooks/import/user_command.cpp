#include "hooks/import/user_command.hpp"

#include <array>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/socket.hpp"

namespace situla {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kMaxOutputBytes = size_t{64} << 10U;

std::chrono::milliseconds left_until(Clock::time_point deadline) {
  return std::max(std::chrono::milliseconds(0),
                  std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()));
}

Error too_long(std::chrono::milliseconds time) {
  return {ErrorKind::failure, "the command took more than " +
                                  std::to_string(std::chrono::duration_cast<std::chrono::seconds>(time).count()) +
                                  " seconds"};
}

Result<std::string> read_until_end(int fd, Clock::time_point deadline, std::chrono::milliseconds time) {
  std::string output;
  std::array<char, 4096> buffer{};
  while (output.size() <= kMaxOutputBytes) {
    pollfd wait{fd, POLLIN, 0};
    const int ready = poll(&wait, 1, static_cast<int>(left_until(deadline).count()));
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) return fail_errno(errno, "wait for the command");
    if (ready == 0) return fail(too_long(time));
    const ssize_t size = read(fd, buffer.data(), buffer.size());
    if (size < 0) return fail_errno(errno, "read from the command");
    if (size == 0) return output;
    output.append(buffer.data(), static_cast<size_t>(size));
  }
  return fail(ErrorKind::failure, "the command printed more than 64 KiB");
}

}  // namespace

Result<CommandOutput> run_for_output(SpawnOptions options, std::string_view input, int input_fd,
                                     std::chrono::milliseconds time) {
  const auto deadline = Clock::now() + time;
  TRY_ASSIGN(const UniqueFd data, sealed_memory("input", input));
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return fail_errno(errno, "create a pipe");
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  options.fds = {{writer.get(), STDOUT_FILENO}, {data.get(), input_fd}};
  TRY_ASSIGN(Child child, spawn(options));
  writer.reset();
  CommandOutput output;
  TRY_ASSIGN(output.text, read_until_end(reader.get(), deadline, time));
  TRY_ASSIGN(const auto status, child.wait_for(left_until(deadline)));
  if (!status) return fail(too_long(time));
  output.status = *status;
  return output;
}

Result<std::string> find_program(const std::string& name, const Environment& environment) {
  const std::string path = environment.get_or("PATH", "/usr/local/bin:/usr/bin:/bin");
  for (const std::string_view directory : split_nonempty(path, ':')) {
    std::string program = std::string(directory) + "/" + name;
    if (directory.starts_with('/') && access(program.c_str(), X_OK) == 0) return program;
  }
  return fail(ErrorKind::not_found, "no such program in PATH");
}

}  // namespace situla
