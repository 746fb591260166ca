#include "hooks/inject/edits/apply.hpp"

#include <utility>

#include "common/base/text.hpp"
#include "hooks/inject/edits/host_boundary.hpp"
#include "hooks/inject/edits/host_file.hpp"
#include "hooks/inject/edits/leftovers.hpp"
#include "hooks/inject/edits/place.hpp"
#include "hooks/inject/edits/program.hpp"
#include "hooks/inject/ldcache/library_cache.hpp"

namespace situla {
namespace {

/// As nvidia-container-cli has them; read-only keeps a driver library from changing the node's mode (GPU.md 1.7). Never
/// nodev.
constexpr MountFlags kDeviceFlags{.read_only = true, .no_suid = true, .no_exec = true};

class Applier {
 public:
  Applier(const ContainerEdits& edits, const EditTarget& target, LogSink& log)
      : edits_(edits), target_(target), log_(log) {}

  Result<void> run() {
    for (const CoverEdit& cover : edits_.covers)
      TRY(attempt(cover, "cover " + printable(cover.target), [&] { return add(cover); }));
    remove_leftovers(edits_.mounts, edits_.libraries.libraries, target_.root, log_);
    for (const MountEdit& mount : edits_.mounts)
      TRY(attempt(mount, "mount " + printable(mount.source) + " on " + printable(mount.target),
                  [&] { return add(mount); }));
    for (const DeviceEdit& device : edits_.devices)
      TRY(attempt(device, "device " + printable(device.source) + " on " + printable(device.target),
                  [&] { return add(device); }));
    TRY(apply_file_changes(edits_.files, target_.root, log_));
    TRY(finish_covers());
    for (const ProgramEdit& program : edits_.programs)
      TRY_CONTEXT(whose(program.origin) + "run " + printable(program.path), run_program(program, target_, log_));
    if (edits_.libraries.empty()) return {};
    return update_library_cache(edits_.libraries, target_.root, log_);
  }

 private:
  static std::string whose(const std::string& origin) { return origin.empty() ? "" : origin + ": "; }

  template <typename Edit, typename Action>
  Result<void> attempt(const Edit& edit, const std::string& operand, Action action) {
    Result<void> done = action();
    if (done) return {};
    Error error = std::move(done).error().with_context(whose(edit.origin) + operand);
    if (edit.on_failure == OnFailure::fail) return fail(std::move(error));
    log_.write(edit.on_failure == OnFailure::warn ? LogLevel::warning : LogLevel::debug, error.text());
    return {};
  }

  Result<void> add(const CoverEdit& cover) {
    // Until everything beneath is there it has to be writable.
    MountFlags flags = cover.flags;
    flags.read_only = false;
    TRY_ASSIGN(UniqueFd mounted, place(cover.target).cover(cover.mode, flags));
    covers_.emplace_back(&cover, std::move(mounted));
    return {};
  }

  Result<void> add(const MountEdit& mount) {
    TRY_ASSIGN(const HostFile source, open_host_file(mount.source, target_));
    TRY(check_source(source, mount));
    return place(mount.target).bind(source, mount.recursive, mount.flags);
  }

  Result<void> add(const DeviceEdit& device) {
    TRY_ASSIGN(const HostFile source, open_host_file(device.source, target_));
    TRY(check_device(source, device, log_));
    return place(device.target).bind(source, false, kDeviceFlags);
  }

  Result<void> finish_covers() {
    for (const auto& [cover, mounted] : covers_)
      TRY_CONTEXT(whose(cover->origin) + "cover " + printable(cover->target),
                  add_mount_flags(mounted.get(), cover->flags, false));
    return {};
  }

  Place place(const std::string& path) { return {target_.root, path}; }

  const ContainerEdits& edits_;
  const EditTarget& target_;
  LogSink& log_;
  std::vector<std::pair<const CoverEdit*, UniqueFd>> covers_;
};

}  // namespace

Result<void> apply(const ContainerEdits& edits, const EditTarget& target, LogSink& log) {
  // Nearly all hooks of nearly all containers.
  if (edits.empty()) return {};
  TRY_ASSIGN(const RootDir root, spare_host_directories(target.root));
  const EditTarget spared{root, target.root_path};
  return Applier(edits, spared, log).run();
}

}  // namespace situla
