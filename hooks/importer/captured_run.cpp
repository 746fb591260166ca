#include "hooks/importer/captured_run.hpp"

#include <array>
#include <csignal>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

namespace situla {
namespace {

constexpr size_t kMaxOutputBytes = size_t{64} << 10U;
constexpr size_t kMaxComplaintBytes = size_t{16} << 10U;
constexpr std::chrono::milliseconds kStopTime{500};
constexpr int kPollMilliseconds = 100;  // where there is no pidfd (before Linux 5.3)

/// One stream of the program.
class Stream {
 public:
  Result<UniqueFd> open() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return fail_errno(errno, "create a pipe");
    reader_.reset(ends[0]);
    UniqueFd writer(ends[1]);
    if (fcntl(reader_.get(), F_SETFL, O_NONBLOCK) != 0) return fail_errno(errno, "prepare a pipe");
    return writer;
  }
  [[nodiscard]] int fd() const { return reader_.get(); }

  /// Takes what is there, at most a pipe's worth at a time: a program that never stops writing must not keep us here.
  template <typename Take>
  void drain(Take take) {
    std::array<char, 8192> buffer{};
    for (int turn = 0; reader_ && turn < 16; ++turn) {
      const ssize_t size = read(reader_.get(), buffer.data(), buffer.size());
      if (size < 0) return;
      if (size == 0) return reader_.reset();
      take(std::string_view(buffer.data(), static_cast<size_t>(size)));
    }
  }

 private:
  UniqueFd reader_;
};

/// spawn() made the program a leader; it is not reaped yet, so the number is still its own.
void stop_group(Child& leader) {
  (void)kill(-leader.pid(), SIGTERM);
  const auto ended = leader.wait_for(kStopTime);
  if (ended && *ended) return;
  (void)kill(-leader.pid(), SIGKILL);
}

}  // namespace

Result<CapturedRun> run_captured(SpawnOptions options, int watched_socket) {
  Stream output;
  Stream complaints;
  TRY_ASSIGN(UniqueFd output_writer, output.open());
  TRY_ASSIGN(UniqueFd complaint_writer, complaints.open());
  options.fds = {{output_writer.get(), STDOUT_FILENO}, {complaint_writer.get(), STDERR_FILENO}};
  options.new_session = true;
  TRY_ASSIGN(Child child, spawn(options));
  output_writer.reset();
  complaint_writer.reset();
  CapturedRun run;
  const auto drain = [&] {
    output.drain([&](std::string_view bytes) { run.output += bytes; });
    complaints.drain([&](std::string_view bytes) {
      run.complaints += bytes;
      if (run.complaints.size() > kMaxComplaintBytes)
        run.complaints.erase(0, run.complaints.size() - kMaxComplaintBytes);
    });
  };
  while (true) {
    std::array<pollfd, 4> wait{{{output.fd(), POLLIN, 0},
                                {complaints.fd(), POLLIN, 0},
                                {child.pidfd(), POLLIN, 0},
                                {watched_socket, POLLRDHUP, 0}}};
    (void)poll(wait.data(), wait.size(), child.pidfd() < 0 ? kPollMilliseconds : -1);
    // Whether it has ended is asked before its last words are read, or some could be missed.
    TRY_ASSIGN(const auto status, child.wait_for(std::chrono::milliseconds(0)));
    drain();
    const bool chatters = run.output.size() > kMaxOutputBytes;
    const bool cancelled = wait[3].revents != 0;
    if (status && !chatters) {
      run.status = *status;
      return run;
    }
    if (!chatters && !cancelled) continue;
    if (!status) stop_group(child);
    if (chatters) return fail(ErrorKind::corrupt, "it prints more than 64 KiB");
    return fail(ErrorKind::cancelled, "cancelled");
  }
}

}  // namespace situla
