#include "hooks/mount/plan.hpp"

#include <algorithm>

#include "common/base/text.hpp"

namespace situla {
namespace {

/// As far as can be said without looking at the file system: a file is mounted there, so nothing can be beneath it.
bool makes_file(const MountStep& step) {
  return step.create == CreateTarget::file && step.kind == StepKind::bind;
}

bool is_beneath(std::string_view path, std::string_view directory) {
  return path.size() > directory.size() && path.starts_with(directory) && path[directory.size()] == '/';
}

Error invalid(const MountStep& step, std::string_view reason) {
  return Error(ErrorKind::usage, step.origin + ": mount on '" + printable(step.target) + "': " + std::string(reason))
      .with_code(ErrorCode::mount_syntax);
}

/// A system call would take the text for a shorter one. Fields may have it as \000.
bool has_nul(const MountStep& step) {
  const auto in = [](const std::string& text) { return text.find('\0') != std::string::npos; };
  return in(step.target) || in(step.source) || in(step.type) || in(step.subpath) ||
         std::any_of(step.parameters.begin(), step.parameters.end(),
                     [&](const auto& each) { return in(each.first) || in(each.second); });
}

Result<void> check(MountStep& step, const std::string& working_directory) {
  if (has_nul(step)) return fail(invalid(step, "a field holds a NUL byte"));
  if (step.target.empty()) return fail(invalid(step, "no target"));
  if (auto target = normal_target(step.target); target)
    step.target = std::move(*target);
  else
    return fail(std::move(target).error().with_context(step.origin));
  switch (step.kind) {
    case StepKind::cover:
      break;
    case StepKind::host_file:
    case StepKind::device:
      if (!step.source.starts_with('/')) return fail(invalid(step, "the source is not an absolute path"));
      break;
    case StepKind::bind:
    case StepKind::image:
    case StepKind::move:
      if (step.source.empty()) return fail(invalid(step, "no source"));
      if (!step.source.starts_with('/') && !is_of_registry(step)) step.source = working_directory + "/" + step.source;
      break;
    case StepKind::filesystem:
      if (step.type.empty()) return fail(invalid(step, "no file system type"));
      if (step.create == CreateTarget::file) return fail(invalid(step, "a file system cannot be mounted on a file"));
      break;
    case StepKind::remount:
      if (!step.parameters.empty()) return fail(invalid(step, "only flags can be changed by a remount"));
      break;
    case StepKind::detach:
      if (step.target == "/") return fail(invalid(step, "the root cannot be unmounted"));
      break;
    case StepKind::propagation:
      if (!step.propagation) return fail(invalid(step, "no propagation given"));
      break;
  }
  return {};
}

}  // namespace

Result<std::string> normal_target(const std::string& target) {
  std::vector<std::string> kept;
  for (const std::string_view component : split_nonempty(target, '/')) {
    if (component == ".") continue;
    if (component != "..") {
      kept.emplace_back(component);
      continue;
    }
    if (kept.empty())
      return fail(std::move(Error::from_errno(EXDEV, "mount target '" + printable(target) + "' leaves the container"))
                      .with_code(ErrorCode::mount_syntax)
                      .with_hint("targets are paths inside the container; \"..\" cannot lead above its root"));
    kept.pop_back();
  }
  return "/" + join(kept, "/");
}

Result<void> MountPlan::add(MountStep step) {
  TRY(check(step, working_directory_));
  for (auto earlier = steps_.rbegin(); earlier != steps_.rend(); ++earlier) {
    // Unmounting twice uncovers two mounts; binding the same thing twice in a row does nothing.
    if (step.kind == StepKind::bind && *earlier == step) return {};
    const bool beneath = is_beneath(step.target, earlier->target);
    // What is detached, or replaced as a whole, no longer stands in the way.
    if (!makes_file(*earlier) && (beneath || earlier->target == step.target)) break;
    if (makes_file(*earlier) && beneath)
      return fail(invalid(step, "beneath the file '" + printable(earlier->target) + "' mounted by " + earlier->origin));
  }
  steps_.push_back(std::move(step));
  return {};
}

Result<void> MountPlan::add(const std::vector<MountStep>& steps) {
  for (const MountStep& step : steps) TRY(add(step));
  return {};
}

}  // namespace situla
