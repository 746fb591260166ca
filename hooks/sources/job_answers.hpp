// What has the registry said that a name means, to srun, for all steps of a job that run on several nodes? On each node
// the store keeps what it was told there (hooks/store/resolution.hpp); that all nodes mean the same is srun's matter.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

#include "common/base/result.hpp"
#include "common/spec/digest.hpp"
#include "common/spec/resolve_rule.hpp"
#include "common/sys/private_directory.hpp"

namespace situla {

struct JobAnswer {
  Digest digest;
  uint64_t asked = 0;           ///< seconds since the epoch, when the registry said so
  uint64_t looked = 0;          ///< when somebody began to look whether it still does
  std::optional<Digest> moved;  ///< what it has said since then
  bool told = false;            ///< and the user knows

  static auto fields(auto& it) { return std::tie(it.digest, it.asked, it.looked, it.moved, it.told); }
};

struct JobName {
  std::string number;   ///< Slurm's
  std::string cluster;  ///< any text that tells clusters of one host apart
};

/// Answers of one name in a directory of the user's own. They say what is asked for, and never who may have it: each
/// node decides that.
class JobAnswers {
 public:
  /// cache: ENROOT_CACHE_PATH, maybe of several hosts.
  static Result<JobAnswers> open(const std::string& cache, const JobName& job, const std::string& image,
                                 const ResolveRule& rule);
  /// What is to be used without asking; now: seconds since the epoch.
  [[nodiscard]] std::optional<JobAnswer> find(uint64_t now) const;
  /// The first answer of a name: returns it, or the one of another step that was faster.
  [[nodiscard]] JobAnswer keep_first(const JobAnswer& answer) const;
  /// Files that nobody has written in a week before answer.looked go.
  Result<void> keep(const JobAnswer& answer) const;

 private:
  JobAnswers(PrivateDirectory directory, std::string name, ResolveRule rule)
      : directory_(std::move(directory)), name_(std::move(name)), rule_(rule) {}
  PrivateDirectory directory_;
  std::string name_;
  ResolveRule rule_;
};

}  // namespace situla
