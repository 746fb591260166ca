// What will be mounted in this container, in which order? A plan: checked as a value before anything is mounted.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/sys/root_dir.hpp"
#include "hooks/mount/step.hpp"

namespace situla {

/// Steps in the order they will be made, each checked when it is added. The only thing that apply() takes.
class MountPlan {
 public:
  /// Relative sources are meant beneath `working_directory`.
  explicit MountPlan(std::string working_directory) : working_directory_(std::move(working_directory)) {}

  /// ErrorKind::usage for a target that leaves the root by "..", for an incomplete combination, and for a step that
  /// cannot work together with an earlier one: something beneath what an earlier step makes a file. Covering an earlier
  /// target is no conflict (a user's /tmp over the default one); exact repetitions of a bind are dropped.
  Result<void> add(MountStep step);
  Result<void> add(const std::vector<MountStep>& steps);

  [[nodiscard]] const std::vector<MountStep>& steps() const { return steps_; }

 private:
  std::string working_directory_;
  std::vector<MountStep> steps_;
};

/// Where a plan is applied.
struct ApplyTarget {
  const RootDir& root;    ///< the container's root, a mount of this mount namespace, in which the caller is root
  std::string root_path;  ///< where it is: ENROOT_ROOTFS. Sources beneath it are resolved inside the root
  std::string working_directory = "/";  ///< relative sources are meant from here
};

/// Absolute form of a path inside the container without ".", empty components and "..". ErrorKind::usage (errno EXDEV)
/// when ".." leads above the root.
Result<std::string> normal_target(const std::string& target);

}  // namespace situla
