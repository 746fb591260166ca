// What does the broker hold of its step from the first moment to the last?
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.hpp"
#include "common/protocol/messages.hpp"
#include "common/spec/site_config.hpp"
#include "common/spec/step_name.hpp"
#include "common/sys/identity.hpp"
#include "plugin/broker/launcher.hpp"
#include "plugin/broker/node/image_mounts.hpp"

namespace situla {

struct Step {
  /// `control`: the socket to slurmstepd.
  static Result<Step> open(StepRequest request, UniqueFd environment, int control);
  /// For kPrologStep: without slurmstepd, and without the job's cgroups.
  static Result<Step> open_before_job(StepRequest request, UniqueFd environment);

  StepRequest request;
  Identity user;
  SiteConfig config;
  Launcher launcher;
  ImageMounts mounts;
  UniqueFd slurmstepd;         ///< its /proc directory; none: before_job()
  UniqueFd spec, environment;  ///< sealed memory files for helpers; of the job's environment nothing is read here
  std::optional<Identity> service{};  ///< whom the node's store belongs to; none: nobody has looked, or no_store
  std::string no_store{};             ///< why the node has no store; empty: it has one, as far as is known

  /// Looks for the service user, once. That there is no such account is no error: no_store says so.
  Result<void> find_service();
  /// As of the request. On a node without a store what is in a registry is imported as the job user, into his own.
  [[nodiscard]] ImageOrigin origin() const;

  /// One of Slurm's commands: beside slurmstepd, as every installation of Slurm has it; else where a user would find
  /// it.
  [[nodiscard]] std::string slurm_program(const std::string& command) const;

  [[nodiscard]] bool before_job() const { return request.step_id == kPrologStep; }
  /// "123.0"; "123.prolog"
  [[nodiscard]] std::string name() const {
    return std::to_string(request.job_id) + "." + (before_job() ? "prolog" : std::to_string(request.step_id));
  }
};

/// Where the task is that asked first: taken while it lives, for helpers that may come later.
struct TaskPlace {
  UniqueFd mounts;        ///< its mount namespace
  std::string cgroups;    ///< cgroups_of(); inside of the job's
  std::string directory;  ///< its working directory; entered as the user

  /// `proc`: its open /proc directory. An error for a process outside of the job.
  static Result<TaskPlace> of(const Step& step, int proc, std::string directory);
};

}  // namespace situla
