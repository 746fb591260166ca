#include "hooks/mount/apply.hpp"

#include <algorithm>
#include <array>
#include <climits>

#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/fd_path.hpp"
#include "common/sys/mount/mount_api.hpp"
#include "hooks/mount/place.hpp"

namespace situla {
namespace {

/// By the kernel, for somebody who may have that done.
bool is_mounted(const MountStep& step) {
  return step.place && !step.place->directory.empty();
}

/// It could not be had, which was said, and need not.
bool is_missing(const MountStep& step) {
  return step.place && step.place->directory.empty() && !step.place->file;
}

/// The images of a plan that a process serves. It opens those that come next while the one before them is mounted.
class PlannedImages {
 public:
  PlannedImages(const std::vector<MountStep>& steps, const ApplyTarget& target)
      : steps_(steps),
        target_(target),
        numbers_(steps.size()),
        // The stage, a tmpfs of the container's namespace that goes when its root is entered.
        images_(target.root_path.substr(0, target.root_path.rfind('/'))) {}

  /// Of one of the steps, in their order.
  Result<ImagePart> open(const MountStep& step) {
    const auto at = static_cast<size_t>(&step - steps_.data());
    next_ = std::max(next_, at + 1);
    if (numbers_[at] == 0) {
      TRY_ASSIGN(numbers_[at], give_image(step, target_, images_));
    }
    give_following();
    return images_.take(numbers_[at]);
  }

 private:
  static constexpr size_t kMostWaiting = 32;

  /// Not before one is there: until then nobody knows which file system must not be its own source. Nor what lies in
  /// the root: the steps before it may be what puts it there.
  void give_following() {
    if (!images_.has_any() || target_.root_path.size() <= 1) return;
    for (; next_ < steps_.size() && images_.waiting() < kMostWaiting; ++next_) {
      const MountStep& step = steps_[next_];
      if (step.kind != StepKind::image || is_mounted(step) || is_missing(step)) continue;
      if (path_in_root(step.source, target_)) return;
      const auto number = give_image(step, target_, images_);
      if (!number) return;  // that is said when it is the step's turn
      numbers_[next_] = *number;
    }
  }

  const std::vector<MountStep>& steps_;
  const ApplyTarget& target_;
  std::vector<uint64_t> numbers_;  ///< MountedImages::give(); 0: not yet
  size_t next_ = 0;                ///< the first that may not have been given
  MountedImages images_;
};

/// One step of the plan; a class because source, target and root are needed by all parts of it.
class Applier {
 public:
  Applier(const MountStep& step, const ApplyTarget& target, PlannedImages& images, LogSink& log)
      : step_(step), target_(target), images_(images), log_(log) {}

  Result<void> run() {
    // A volume's source may be the very directory that x-create makes: ${ENROOT_ROOTFS}/V on /V.
    if (step_.create == CreateTarget::file || step_.create == CreateTarget::directory)
      TRY(open_place(step_, target_, step_.create == CreateTarget::directory));
    switch (step_.kind) {
      case StepKind::host_file:
      case StepKind::device:
      case StepKind::bind:
        TRY(bind());
        break;
      case StepKind::cover:
      case StepKind::filesystem:
        TRY(place_file_system(step_, target_));
        break;
      case StepKind::image:
        TRY(image());
        break;
      case StepKind::move:
        TRY(move());
        break;
      case StepKind::remount:
        TRY(remount());
        break;
      case StepKind::detach:
        return detach();
      case StepKind::propagation:
        break;
    }
    return propagate();
  }

 private:
  Result<void> bind() {
    TRY_ASSIGN(const MountSource source, open_source(step_, target_));
    TRY(check_source(source, step_, log_));
    // A tree that has the stage beneath it would come with another copy of the container's root, which could be written
    // to, and with all that is mounted there already. Not where the stage is no mount of its own (in steps).
    const std::string stage = target_.root_path.substr(0, target_.root_path.rfind('/'));
    const bool outside = !stage.empty() && step_.source != stage && !step_.source.starts_with(stage + "/");
    const bool hidden = outside && set_propagation(stage, Propagation::unbindable, false).has_value();
    auto bound = place_bind(source, step_, target_);
    if (hidden) TRY(set_propagation(stage, Propagation::private_mount, false));
    return bound;
  }

  Result<void> image() {
    TRY_ASSIGN(const ImagePart part, is_mounted(step_) ? part_of_mounted(step_) : images_.open(step_));
    return place_image(part, step_, target_);
  }

  Result<void> move() {
    TRY_ASSIGN(MountSource source, open_source(step_, target_));
    TRY_ASSIGN(const UniqueFd target, open_place(step_, target_, source.is_directory()));
    TRY(DetachedMount(std::move(source.fd)).attach(target.get()));
    TRY_ASSIGN(const UniqueFd moved, find_place(step_, target_));
    return add_mount_flags(moved.get(), step_.flags, true);
  }

  Result<void> remount() {
    TRY_ASSIGN(const UniqueFd target, find_place(step_, target_));
    return add_mount_flags(target.get(), step_.flags, step_.recursive);
  }

  /// umount2(2) takes a path only. Nothing else runs in this namespace, so the path of the descriptor stays true.
  Result<void> detach() {
    TRY_ASSIGN(const UniqueFd target, find_place(step_, target_));
    std::array<char, PATH_MAX> path{};
    const ssize_t size = readlink(fd_path(target.get()).c_str(), path.data(), path.size() - 1);
    if (size <= 0) return fail_errno(errno, "find the path of " + step_.target);
    return unmount(std::string(path.data(), static_cast<size_t>(size)), true);
  }

  Result<void> propagate() {
    if (!step_.propagation) return {};
    TRY_ASSIGN(const UniqueFd target, find_place(step_, target_));
    return set_propagation(fd_path(target.get()), *step_.propagation, step_.propagation_recursive);
  }

  const MountStep& step_;
  const ApplyTarget& target_;
  PlannedImages& images_;
  LogSink& log_;
};

}  // namespace

Result<void> apply(const MountPlan& plan, const ApplyTarget& target, LogSink& log) {
  PlannedImages images(plan.steps(), target);
  for (const MountStep& step : plan.steps()) {
    const std::string whose = step.origin.empty() ? "" : step.origin + ": ";
    for (const std::string& word : step.ignored)
      log.warning(whose + operand(step) + ": ignoring unknown option \"" + printable(word) + "\"");
    if (is_missing(step)) continue;
    auto done = Applier(step, target, images, log).run();
    if (done) continue;
    Error error = std::move(done).error().with_context(whose + operand(step)).with_code(ErrorCode::mount_failed);
    // nofail is for what is not there, or cannot be mounted; not for a node that has no descriptors left.
    if (step.on_failure == OnFailure::fail || error.inconclusive()) return fail(std::move(error));
    log.write(step.on_failure == OnFailure::warn ? LogLevel::warning : LogLevel::debug,
              is_for_device(step) ? error.text() : error.message());
  }
  return {};
}

Result<void> mount_steps(const std::vector<MountStep>& steps, const ApplyTarget& target, LogSink& log) {
  MountPlan plan(target.working_directory);
  TRY(plan.add(steps));
  return apply(plan, target, log);
}

}  // namespace situla
