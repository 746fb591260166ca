// What will be mounted in this container, in which order? A plan: checked as a value before anything is mounted.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "hooks/mount/step.hpp"

namespace situla {

class ValidatedMountPlan;

/// A list of steps in the order they will be made. Adding checks nothing but contradictions between steps.
class MountPlan {
 public:
  /// ErrorKind::usage for a step that cannot work together with an earlier one: something beneath what an earlier step
  /// makes a file. Covering an earlier target is no conflict (a user's /tmp over the default one); exact repetitions
  /// are dropped.
  Result<void> add(MountStep step);
  Result<void> add(const std::vector<MountStep>& steps);

  /// Checks every step on its own: a target that leaves the root by "..", an unknown or incomplete combination.
  /// Relative sources become absolute beneath `working_directory`.
  Result<ValidatedMountPlan> validate(const std::string& working_directory) &&;

  [[nodiscard]] const std::vector<MountStep>& steps() const { return steps_; }

 private:
  std::vector<MountStep> steps_;
};

/// The only kind of plan that apply() takes.
class ValidatedMountPlan {
 public:
  [[nodiscard]] const std::vector<MountStep>& steps() const { return steps_; }
  /// One line per step, in order, each with who asked for it.
  [[nodiscard]] std::string describe() const;

 private:
  friend class MountPlan;
  explicit ValidatedMountPlan(std::vector<MountStep> steps) : steps_(std::move(steps)) {}
  std::vector<MountStep> steps_;
};

/// Absolute form of a path inside the container without ".", empty components and "..". ErrorKind::usage (errno EXDEV)
/// when ".." leads above the root.
Result<std::string> normal_target(const std::string& target);

}  // namespace situla
