// What does slurmstepd hold for a step with a container? The broker's control socket, the address tasks connect to, and
// a token.
#pragma once

#include <chrono>
#include <string>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/protocol/messages.hpp"

namespace situla {

/// Lives in slurmstepd from init_post_opt to exit; the forked tasks inherit a copy. DESIGN.md section 3, steps 1, 3
/// and 6.
class StepSession {
 public:
  /// Starts the broker. `environment` is the job's, as NUL-separated bytes. Not later than init_post_opt: with
  /// contain_spank the later callbacks run in a child whose descriptors are lost.
  static Result<StepSession> start(StepRequest request, std::string_view environment);

  /// Tells the broker that the step's cgroups are there. One that does not hear it learns it from the first task.
  void step_is_prepared() const;

  /// In a forked task, still root: closes the inherited copy of the control socket. A task that kept it would keep the
  /// broker from noticing that slurmstepd died.
  void forget_control() {
    control_.reset();
    program_.reset();
  }

  /// All local tasks have ended: waits until nothing is left of the container, at most `limit`; and before that until
  /// it is saved, if that was asked for, however long it takes. Notes go to `log`. Returns the broker's summary for the
  /// node's log. Safe to call twice.
  Result<std::string> finish(std::chrono::milliseconds limit, LogSink& log);

  [[nodiscard]] const std::string& address() const { return address_; }
  [[nodiscard]] const StepToken& token() const { return request_.token; }

 private:
  StepSession(UniqueFd program, UniqueFd control, std::string address, StepRequest request)
      : program_(std::move(program)),
        control_(std::move(control)),
        address_(std::move(address)),
        request_(std::move(request)) {}

  UniqueFd program_;  ///< situla-broker's: what is started of it later in the step is of the same release
  UniqueFd control_;
  std::string address_;
  StepRequest request_;
};

/// Before a job's steps, as root: starts what fetches the image of `request`, and returns. It holds nothing of this
/// process, and ends with the image, after import_timeout, or in the job's epilog (clean_up_after_job).
Result<void> start_job_import(const StepRequest& request, std::string_view environment);

/// After a job, as root: ends what its prolog began, removes, as the user, its named containers if they end with it
/// (container_scope=job), and waits for that. `user`'s home directory says where they are when no step of the job has
/// left its environment. A job that had neither costs nothing, unless `own_containers`.
Result<void> clean_up_after_job(uint32_t job, uid_t user, bool own_containers, std::chrono::milliseconds limit);

}  // namespace situla
