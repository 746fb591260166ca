#include "hooks/mount/apply.hpp"

#include <array>
#include <climits>

#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/fd_path.hpp"
#include "common/sys/mount/mount_api.hpp"
#include "hooks/mount/place.hpp"

namespace situla {
namespace {

/// One step of the plan; a class because source, target and root are needed by all parts of it.
class Applier {
 public:
  Applier(const MountStep& step, const ApplyTarget& target, MountedImages& images, LogSink& log)
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
        TRY(place_image(step_, target_, images_));
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
    return place_bind(source, step_, target_);
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
  MountedImages& images_;
  LogSink& log_;
};

}  // namespace

Result<void> apply(const MountPlan& plan, const ApplyTarget& target, LogSink& log) {
  // The stage, a tmpfs of the container's namespace that goes when its root is entered.
  MountedImages images(target.root_path.substr(0, target.root_path.rfind('/')));
  for (const MountStep& step : plan.steps()) {
    const std::string whose = step.origin.empty() ? "" : step.origin + ": ";
    for (const std::string& word : step.ignored)
      log.warning(whose + operand(step) + ": ignoring unknown option \"" + printable(word) + "\"");
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
