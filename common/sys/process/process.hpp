// How are helper processes started, watched and ended? Move-only children with a pidfd; nothing is ever killed by
// number.
#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"

namespace situla {

/// How a child ended: an exit code, or a signal.
struct ExitStatus {
  int code = 0;    ///< exit code when signal == 0
  int signal = 0;  ///< terminating signal or 0
  [[nodiscard]] bool success() const { return code == 0 && signal == 0; }
  [[nodiscard]] std::string text() const;  ///< "exited with return code 3", "was killed by SIGKILL"
};

/// A child of this process. The destructor kills (SIGKILL) and reaps it unless it was waited for or released; one that
/// does not end for seconds even then is left, and the system log says so.
class Child {
 public:
  Child() = default;
  Child(pid_t pid, UniqueFd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)), pidfd_(std::move(other.pidfd_)) {}
  Child& operator=(Child&& other) noexcept;
  ~Child();

  [[nodiscard]] explicit operator bool() const { return pid_ > 0; }
  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Readable when the child has ended. -1 on kernels without pidfd_open (< 5.3).
  [[nodiscard]] int pidfd() const { return pidfd_.get(); }
  Result<ExitStatus> wait();
  /// nullopt: still running after the time.
  Result<std::optional<ExitStatus>> wait_for(std::chrono::milliseconds time);
  Result<void> signal(int number) const;
  /// Leaves the process running and unowned; returns its pidfd.
  UniqueFd release();

 private:
  /// waitpid(2); nullopt: it runs (WNOHANG).
  Result<std::optional<ExitStatus>> reap(int flags);

  pid_t pid_ = -1;
  UniqueFd pidfd_;
};

/// What a spawned program gets. Everything else is closed or reset: fds (close_range), signal mask and dispositions,
/// oom_score_adj is set to 0, stdin/stdout/stderr are /dev/null unless mapped.
struct SpawnOptions {
  std::string program;                   ///< absolute path; with program_fd only for messages
  int program_fd = -1;                   ///< execveat(2) of this descriptor (O_PATH): whatever its path means by now
  std::vector<std::string> arguments;    ///< argv, [0] included
  std::vector<std::string> environment;  ///< exactly this, "NAME=VALUE"
  std::vector<std::pair<int, int>> fds;  ///< {descriptor here, number in the child}; all others are closed
  std::string directory = "/";           ///< working directory
  bool die_with_parent = true;           ///< PR_SET_PDEATHSIG SIGKILL; "parent" is the thread that calls spawn()
  bool new_session = false;              ///< setsid(2)
  bool no_new_privileges = false;  ///< PR_SET_NO_NEW_PRIVS: set-user-ID programs and file capabilities gain nothing
};
/// vfork-free fork + exec for any process, multi-threaded ones included: all memory is prepared before the fork and
/// only async-signal-safe calls are made after it. An exec failure is reported here, as an error.
Result<Child> spawn(const SpawnOptions& options);
/// The same by two forks: the program is no descendant of this process, and outlives it. Returns when it runs.
Result<void> spawn_detached(const SpawnOptions& options);

/// Replaces this (single-threaded) process by a program, with descriptors, session and directory as for spawn().
/// Returns only on failure, and then the descriptors may be in disorder: report through one that is in options.fds, by
/// its target number, or not at all.
Error execute(const SpawnOptions& options);

/// execve(2) with the environment, the directory and the descriptors of this process; arguments: argv, [0] included.
/// Only an error returns.
Error exec_program(const std::string& path, const std::vector<std::string>& arguments);

/// fork(2) for a single-threaded process with a pidfd; returns an empty Child in the child.
Result<Child> fork_child();
/// In the new child: SIGKILL when the parent ends (PR_SET_PDEATHSIG), through exec(2), too.
Result<void> die_with_parent();
/// This process gets the processor time that nobody else wants (SCHED_IDLE), for good.
Result<void> run_when_idle();
/// fork(2) and its like fail from now on, for good (RLIMIT_NPROC). Not for root.
Result<void> forbid_new_processes();
/// The calling thread gives way to its process's other threads: its nice value (setpriority(2)) rises by that much.
Result<void> give_way(int steps);
/// In the new child, before exec: closes all descriptors >= first except those in `keep` (sorted not required).
void close_other_fds(int first, const std::vector<int>& keep);
/// Opens a pidfd (pidfd_open(2)) for somebody else's process.
Result<UniqueFd> open_pidfd(pid_t pid);
Result<void> signal_pidfd(int pidfd, int number);

/// Waits for the end of a process that is not our child: by its pidfd, or by looking at its /proc directory now and
/// then (Linux < 5.3; by_pidfd = false forces it).
class ProcessEnd {
 public:
  static Result<ProcessEnd> of(pid_t pid, bool by_pidfd = true);
  [[nodiscard]] int fd() const { return fd_.get(); }  ///< must stay open until wait() returns
  void wait() const;

 private:
  ProcessEnd(UniqueFd fd, bool is_pidfd) : fd_(std::move(fd)), is_pidfd_(is_pidfd) {}
  UniqueFd fd_;
  bool is_pidfd_;
};
/// First in main(): /proc/PID/comm says the program's name, which before Linux 6.14 is a number when it was executed by
/// descriptor.
void take_program_name();
/// Changes what /proc/PID/comm says (PR_SET_NAME, 15 bytes) until destroyed; exec(2) resets it as well.
class ProcessName {
 public:
  explicit ProcessName(const char* name);
  ProcessName(const ProcessName&) = delete;
  ProcessName& operator=(const ProcessName&) = delete;
  ~ProcessName();

 private:
  std::array<char, 16> before_{};
};
/// Empty signal mask, default dispositions: what a spawned program expects.
void reset_signals();

}  // namespace situla
