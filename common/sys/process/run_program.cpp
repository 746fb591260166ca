#include "common/sys/process/run_program.hpp"

#include <algorithm>
#include <array>
#include <csignal>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/guarded.hpp"

namespace situla {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A program may lose a signal: srun passes SIGTERM on to tasks, and forgets it where they are not started yet.
constexpr milliseconds kTellAgain{1000};
constexpr milliseconds kLookAgain{100};  // for cancelled(), and for ends where there is no pidfd (before Linux 5.3)

/// One stream of the program.
class Stream {
 public:
  /// The program's end.
  Result<UniqueFd> open() {
    TRY_ASSIGN(auto pipe, make_pipe());
    reader_ = std::move(pipe.first);
    if (fcntl(reader_.get(), F_SETFL, O_NONBLOCK) != 0) return fail_errno(errno, "prepare a pipe");
    return std::move(pipe.second);
  }
  [[nodiscard]] int fd() const { return reader_.get(); }

  /// Takes what is there, at most two pipes' worth: a program that never stops writing must not keep us here.
  void drain(std::string& text) {
    std::array<char, 8192> buffer{};
    for (int turn = 0; reader_ && turn < 16; ++turn) {
      const ssize_t size = read(reader_.get(), buffer.data(), buffer.size());
      if (size < 0 && errno == EINTR) continue;
      if (size < 0) return;
      if (size == 0) return reader_.reset();
      text.append(buffer.data(), static_cast<size_t>(size));
    }
  }

 private:
  UniqueFd reader_;
};

bool maps(const SpawnOptions& options, int number) {
  return std::any_of(options.fds.begin(), options.fds.end(),
                     [number](const auto& entry) { return entry.second == number; });
}

class Running {
 public:
  Running(const RunLimits& limits, bool has_group) : limits_(limits), has_group_(has_group) {
    if (limits.time) deadline_ = Clock::now() + *limits.time;
  }

  Result<void> start(SpawnOptions options) {
    UniqueFd output, errors;
    if (!limits_.together && !maps(options, STDOUT_FILENO)) {
      TRY_ASSIGN(output, output_.open());
      options.fds.emplace_back(output.get(), STDOUT_FILENO);
    }
    if (limits_.error_bytes != 0) {
      TRY_ASSIGN(errors, errors_.open());
      options.fds.emplace_back(errors.get(), STDERR_FILENO);
      if (limits_.together) options.fds.emplace_back(errors.get(), STDOUT_FILENO);
    }
    if (limits_.guarded) {
      TRY_ASSIGN(guarded_, spawn_guarded(options, true));
    } else {
      TRY_ASSIGN(child_, spawn(options));
    }
    return {};
  }

  Result<ProgramRun> wait() {
    for (;;) {
      wait_for_something();
      // Whether it has ended is asked before its last words are read, or some could be missed.
      TRY_ASSIGN(run_.status, guarded_ ? guarded_.wait_for(milliseconds(0)) : child_.wait_for(milliseconds(0)));
      drain();
      if (run_.output.size() > limits_.output_bytes) stop(ProgramRun::End::too_much_output);
      if (run_.status) return std::move(run_);
      if (deadline_ && Clock::now() >= *deadline_) {
        if (stopped_) break;
        stop(ProgramRun::End::too_late);
      }
      if (!stopped_ && limits_.cancelled && limits_.cancelled()) stop(ProgramRun::End::cancelled);
      if (stopped_ && guarded_) return std::move(run_);  // the guard ends it
      if (stopped_ && Clock::now() >= tell_again_) tell_to_end();
    }
    send(SIGKILL);
    TRY_ASSIGN(run_.status, child_.wait_for(limits_.grace));
    // One that waits inside a driver, say, does not even die of SIGKILL.
    if (!run_.status) child_.release();
    return std::move(run_);
  }

 private:
  void wait_for_something() {
    const int pidfd = guarded_ ? guarded_.pidfd() : child_.pidfd();
    std::array<pollfd, 3> entries = {{{output_.fd(), POLLIN, 0}, {errors_.fd(), POLLIN, 0}, {pidfd, POLLIN, 0}}};
    auto time = limits_.cancelled || pidfd < 0 ? kLookAgain : milliseconds::max();
    if (deadline_) time = std::min(time, std::chrono::ceil<milliseconds>(*deadline_ - Clock::now()));
    if (stopped_) time = std::min(time, kTellAgain);
    constexpr milliseconds kLongest{3600 * 1000};
    (void)poll(entries.data(), entries.size(), static_cast<int>(std::clamp(time, milliseconds(0), kLongest).count()));
  }

  void drain() {
    output_.drain(run_.output);
    // Of one that is to end, and writes on, no more is kept.
    if (stopped_ && run_.output.size() > limits_.output_bytes) run_.output.resize(limits_.output_bytes);
    errors_.drain(run_.errors);
    if (run_.errors.size() > limits_.error_bytes) run_.errors.erase(0, run_.errors.size() - limits_.error_bytes);
  }

  void stop(ProgramRun::End why) {
    if (stopped_) return;
    stopped_ = true;
    run_.end = why;
    if (run_.status || guarded_) return;
    tell_to_end();
    deadline_ = Clock::now() + limits_.grace;
  }

  void tell_to_end() {
    send(SIGTERM);
    tell_again_ = Clock::now() + kTellAgain;
  }

  /// spawn() made the program a leader; it is not reaped yet, so the number is still its own.
  void send(int signal) {
    if (has_group_)
      (void)kill(-child_.pid(), signal);
    else
      (void)child_.signal(signal);
  }

  const RunLimits& limits_;
  bool has_group_;
  std::optional<Clock::time_point> deadline_;
  Clock::time_point tell_again_{};
  Child child_;  ///< or
  GuardedProgram guarded_;
  Stream output_, errors_;
  ProgramRun run_;
  bool stopped_ = false;
};

}  // namespace

Result<ProgramRun> run_program(SpawnOptions options, const RunLimits& limits) {
  Running running(limits, options.new_session);
  TRY(running.start(std::move(options)));
  return running.wait();
}

Result<void> check_program_of_root(const std::string& path) {
  constexpr mode_t kOthersMayWrite = S_IWGRP | S_IWOTH;
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return fail_errno(errno, "look at " + path);
  if (status.st_uid == 0 && S_ISREG(status.st_mode) && (status.st_mode & kOthersMayWrite) == 0) return {};
  return fail(Error(ErrorKind::denied, path + ": others than root may write to it").with_code(ErrorCode::installation));
}

std::string find_program(std::string_view name, std::string_view directories) {
  for (const std::string_view directory : split_nonempty(directories, ':')) {
    std::string path = std::string(directory) + "/" + std::string(name);
    if (path.starts_with('/') && access(path.c_str(), X_OK) == 0) return path;
  }
  return {};
}

}  // namespace situla
