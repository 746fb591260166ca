// Where may a process live that Situla starts? In its job's cgroups, or in Situla's own; never in slurmd's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/sys/process/cgroup.hpp"

namespace situla {

/// One cgroup in each hierarchy, as /proc/PID/cgroup lists them (cgroups(7)). Only NodeCgroups makes one, so that what
/// asks for one cannot be started without an answer to the question above.
class CgroupPlace {
 public:
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  friend class NodeCgroups;
  explicit CgroupPlace(std::string text) : text_(std::move(text)) {}
  std::string text_;
};

/// What Slurm calls the cgroup of a job in the paths of these lines (/proc/PID/cgroup): "/job_7", or from 26.05 on, in
/// version 2, its SLUID, "/s2D1M8KFRQN300". "/job_7" where they have neither.
std::string job_component(uint32_t job, std::string_view cgroups);

/// What Slurm made for one job, and beside it Situla's own: `situla/broker/UID`, for what root and the service accounts
/// run for a user, and `situla/cleanup/UID`, for what runs as him before and after his job, where no device can be
/// opened, each with a limit of memory and of processes: whatever one user makes of it, others have theirs. Version 1
/// has them at the top of each hierarchy that Slurm can use, version 2 beside the cgroups of jobs, where Slurm itself
/// may make some. A node whose Slurm uses no cgroups has none of them: there a job lives where slurmd does, and so does
/// all of Situla.
class NodeCgroups {
 public:
  /// For the broker of a step, with what it inherited from slurmstepd. Makes and enters Situla's own.
  static Result<NodeCgroups> enter(uint32_t job, uint32_t step, uid_t user);
  /// For what a job's prolog begins, before Slurm has made the job's cgroups: with Situla's own in their place, which a
  /// broker has made since the node started. ErrorKind::not_found: none has run yet, so that nobody knows where Slurm
  /// has its cgroups, or whether it uses any.
  static Result<NodeCgroups> enter_before_job(uint32_t job, uid_t user);
  /// For what cleans up after jobs: Situla's own, if a broker has made them since the node started.
  static Result<NodeCgroups> enter_after_jobs(uid_t user);

  /// slurmstepd has made the step's cgroups and lives in them, as far as it ever does. `slurmstepd`: its open /proc
  /// directory.
  Result<void> step_is_prepared(int slurmstepd);
  [[nodiscard]] bool step_prepared() const { return prepared_; }

  /// Whether Slurm uses cgroups here.
  [[nodiscard]] bool used() const { return !own_.empty(); }
  [[nodiscard]] CgroupPlace broker() const;
  [[nodiscard]] CgroupPlace cleanup() const;
  /// An error before step_is_prepared().
  [[nodiscard]] Result<CgroupPlace> step() const;
  /// The same for what serves other steps as well.
  [[nodiscard]] Result<CgroupPlace> job() const;
  /// Whether the kernel has killed something of the step because its memory was used up.
  [[nodiscard]] bool memory_ran_out() const { return prepared_ && situla::memory_ran_out(step_text_); }

  /// Whether Slurm has suspended the step's job (scontrol suspend, PreemptMode=SUSPEND).
  [[nodiscard]] bool is_suspended() const { return prepared_ && is_frozen(step_text_); }

  /// Whether what says that it is a task of the step lives in the job: a process of the same user outside of it may
  /// have read the token in a task's memory.
  [[nodiscard]] Result<void> check_task(std::string_view cgroups) const;

  /// After the last process of the step: version 2 has a cgroup that step() has made, and which Slurm waits for. alone:
  /// it has given up waiting, and those above it are removed as well.
  void leave_step(bool alone) const;

  /// Those of Situla's own that no process of their user has been in for an hour.
  void remove_idle_shares() const;

 private:
  NodeCgroups(uint32_t job, uint32_t step, uid_t user, std::string inherited)
      : job_(job), step_(step), user_(user), inherited_(std::move(inherited)) {}
  Result<void> make_own(std::string_view cgroups);
  Result<void> enter_own() const;
  static Result<void> note_none();
  [[nodiscard]] std::string share() const { return "/" + std::to_string(user_); }

  uint32_t job_, step_;
  uid_t user_;
  std::string inherited_;  ///< cgroups_of() slurmd or slurmstepd, where this process began
  std::string own_;        ///< Situla's own, without the last two components; empty: none
  bool prepared_ = false;
  std::string step_text_, job_text_;
};

}  // namespace situla
