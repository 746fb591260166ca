#include "hooks/mount/apply.hpp"

#include <array>
#include <climits>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"

namespace situla {
namespace {

constexpr mode_t kDirectoryMode = 0755;
constexpr mode_t kFileMode = 0644;

std::string descriptor_path(int fd) {
  return "/proc/self/fd/" + std::to_string(fd);
}

Result<bool> is_directory(int fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return fail_errno(errno, "inspect the source");
  return S_ISDIR(status.st_mode);
}

Error explain_target(Error error, const MountStep& step) {
  switch (error.errnum()) {
    case ENOENT:
      error.with_hint(step.create == CreateTarget::no ? "nothing is there to mount on; x-create=auto makes it"
                                                      : "a directory on the way to the target is a dangling link");
      break;
    case EROFS:
      error.with_hint("the target does not exist and lies on a read-only mount, where it cannot be made");
      break;
    case ENOTDIR:
    case EISDIR:
      error.with_hint("a directory can only be mounted on a directory, a file only on a file");
      break;
    default:
      break;
  }
  return error;
}

/// One step of the plan; a class because source, target and root are needed by all parts of it.
class Applier {
 public:
  Applier(const MountStep& step, const ApplyTarget& container) : step_(step), container_(container) {}

  Result<void> run() {
    // A volume's source may be the very directory that x-create makes: ${ENROOT_ROOTFS}/V on /V.
    if (step_.create == CreateTarget::file || step_.create == CreateTarget::directory)
      TRY(create(step_.create == CreateTarget::directory));
    switch (step_.kind) {
      case StepKind::bind:
        TRY(bind());
        break;
      case StepKind::filesystem:
        TRY(new_file_system());
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
  Result<void> create(bool directory) {
    auto made = directory ? container_.root.make_directories(step_.target, kDirectoryMode)
                          : container_.root.make_file(step_.target, kFileMode);
    if (!made) return fail(explain_target(std::move(made).error(), step_));
    return {};
  }

  Result<UniqueFd> open_source() const {
    if (step_.source == container_.root_path) return container_.root.resolve("/");
    if (step_.source.starts_with(container_.root_path + "/"))
      return container_.root.resolve(std::string_view(step_.source).substr(container_.root_path.size()));
    auto source = open_file(step_.source, O_PATH);
    if (!source && source.error().errnum() == ENOENT)
      source.error().with_hint("the source of a mount must exist on the node; nofail skips a mount that is missing");
    return source;
  }

  Result<UniqueFd> open_target() const {
    auto target = container_.root.resolve(step_.target);
    if (!target) return fail(explain_target(std::move(target).error(), step_));
    return target;
  }

  Result<void> bind() {
    TRY_ASSIGN(const UniqueFd source, open_source());
    TRY_ASSIGN(const bool directory, is_directory(source.get()));
    if (step_.create == CreateTarget::automatic) TRY(create(directory));
    TRY_ASSIGN(const UniqueFd target, open_target());
    auto bound = bind_at(target.get(), source.get(), step_.recursive, step_.flags, step_.target);
    // In a user namespace a tree with mounts in it can only be bound whole, or hidden files would show
    // (mount_namespaces(7), "Restrictions on mount namespaces"). enroot's "bind" fails there; the whole tree is what
    // people want.
    if (!bound && !step_.recursive && bound.error().errnum() == EINVAL)
      bound = bind_at(target.get(), source.get(), true, step_.flags, step_.target);
    if (!bound) return fail(explain_target(std::move(bound).error(), step_));
    return {};
  }

  Result<void> new_file_system() {
    if (step_.create == CreateTarget::automatic) TRY(create(true));
    TRY_ASSIGN(const UniqueFd target, open_target());
    return mount_new_at(target.get(), step_.type, step_.source, step_.parameters, step_.flags, step_.target);
  }

  Result<void> move() {
    TRY_ASSIGN(UniqueFd source, open_source());
    TRY_ASSIGN(const bool directory, is_directory(source.get()));
    if (step_.create == CreateTarget::automatic) TRY(create(directory));
    TRY_ASSIGN(const UniqueFd target, open_target());
    TRY(DetachedMount(std::move(source)).attach(target.get()));
    TRY_ASSIGN(const UniqueFd moved, open_target());
    return add_mount_flags(moved.get(), step_.flags, true);
  }

  Result<void> remount() {
    TRY_ASSIGN(const UniqueFd target, open_target());
    return add_mount_flags(target.get(), step_.flags, step_.recursive);
  }

  /// umount2(2) takes a path only. Nothing else runs in this namespace, so the path of the descriptor stays true.
  Result<void> detach() {
    TRY_ASSIGN(const UniqueFd target, open_target());
    std::array<char, PATH_MAX> path{};
    const ssize_t size = readlink(descriptor_path(target.get()).c_str(), path.data(), path.size() - 1);
    if (size <= 0) return fail_errno(errno, "find the path of " + step_.target);
    return unmount(std::string(path.data(), static_cast<size_t>(size)), true);
  }

  Result<void> propagate() {
    if (!step_.propagation) return {};
    TRY_ASSIGN(const UniqueFd target, open_target());
    return set_propagation(descriptor_path(target.get()), *step_.propagation, step_.propagation_recursive);
  }

  const MountStep& step_;
  const ApplyTarget& container_;
};

std::string operand(const MountStep& step) {
  std::string target = printable(step.target);
  switch (step.kind) {
    case StepKind::bind:
      return "bind " + printable(step.source) + " on " + target;
    case StepKind::filesystem:
      return "mount " + printable(step.type) + " on " + target;
    case StepKind::move:
      return "move " + printable(step.source) + " to " + target;
    case StepKind::remount:
      return "remount " + target;
    case StepKind::detach:
      return "unmount " + target;
    case StepKind::propagation:
      return "set propagation of " + target;
  }
  return target;
}

}  // namespace

Result<void> apply(const ValidatedMountPlan& plan, const ApplyTarget& target, LogSink& log) {
  for (const MountStep& step : plan.steps()) {
    for (const std::string& word : step.ignored)
      log.warning(step.origin + ": " + operand(step) + ": ignoring unknown option \"" + printable(word) + "\"");
    auto done = Applier(step, target).run();
    if (done) continue;
    Error error = std::move(done).error().with_context(operand(step)).with_context(step.origin);
    if (step.on_failure == OnFailure::fail) return fail(std::move(error));
    if (step.on_failure == OnFailure::warn) log.warning(error.message());
  }
  return {};
}

Result<void> mount_steps(const std::vector<MountStep>& steps, const std::string& working_directory,
                         const ApplyTarget& target, LogSink& log) {
  MountPlan plan;
  TRY(plan.add(steps));
  TRY_ASSIGN(const ValidatedMountPlan validated, std::move(plan).validate(working_directory));
  return apply(validated, target, log);
}

}  // namespace situla
