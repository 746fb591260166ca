// Which processes does the broker start beside those of an import, as whom, with what, and how do they end? None keeps
// any privilege.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "plugin/broker/image.hpp"
#include "plugin/broker/launcher.hpp"
#include "plugin/broker/step.hpp"

namespace situla {

/// How long a helper may take to end by itself.
constexpr std::chrono::seconds kEndLimit{5};

/// "WHO was killed by SIGKILL", of a helper that has closed its connection too early.
Error ended_early(const char* who, Child& process);
/// The same of one that lives in the step's cgroup, where the reason may be that no memory was left; of one that was
/// waited for, how it ended.
Error ended_early(const char* who, Child& process, const NodeCgroups& step);
Error ended_early(const char* who, const ExitStatus& status, const NodeCgroups& step);

/// A helper of the job user in the mount namespace and the directory of the asking task, with specification and
/// environment. `place` outlives the launch.
Launch in_task_place(const Step& step, const TaskPlace& place, Program program, std::vector<std::string> arguments,
                     CgroupPlace cgroup);

/// What a builder gets beside the specification.
struct BuilderFiles {
  int task = -1;  ///< connection of the asking task, with its packet in it
  int for_tasks = -1, for_others = -1;
  int saved = -1;  ///< or none
};
/// RootOperation::stage_root, then the builder. That of a named container serves other steps as well: it belongs to the
/// job, not to the step.
Result<Helper> start_builder(const Step& step, const TaskPlace& place, const BuilderFiles& files,
                             const StepImage& image);

/// RootOperation::keep_container_image: attaches the image's mount beneath the stage of a builder that has made no user
/// namespace yet. ErrorKind::denied: it has, or is not where it was started.
Result<void> attach_image(const Child& builder, const UniqueFd& mount, const std::string& name);

/// How it ends, and what is removed when it could not do so itself.
struct Builder {
  Helper helper;
  std::string scratch_path;  ///< what it has on disk, as it says: for the cleaner that runs as the user; may be empty
  bool stays = false;        ///< it keeps that until its connection is closed

  [[nodiscard]] int socket() const { return helper.socket.get(); }
  /// What it says of the directory. An error: that cannot be a path.
  Result<void> take_scratch_path(const std::string& path);

  /// Waits until it has ended and nothing is left of what it made outside of the container's namespaces. orderly: the
  /// tasks have ended. ready: the container was. False: something may be left at scratch_path, which was too much for
  /// the time that there is.
  [[nodiscard]] bool end(const Step& step, const TaskPlace& place, bool orderly, bool ready);

 private:
  void drain_messages();
};

/// Where a driver of NVIDIA's is loaded: what is known of it is made anew if it is not right any more, while nobody
/// waits.
void refresh_inventory(const Step& step);

/// Removes, as the service user, what killed imports left in the store. step: "123.0", one that has none any more.
Result<Child> start_store_sweeper(const Launcher& launcher, const SiteConfig& config, const std::string& step);

/// Who removes as the user what he owns, and, if that is not all there is, once more what others of his range own.
class Cleaner {
 public:
  /// The named containers of a job that has ended. environment_fd: keep_environment()'s file, or -1.
  static Result<Cleaner> of_job(const Launcher& launcher, uid_t user, uint32_t job, int environment_fd);
  /// A scratch directory; the path means nothing to this side.
  static Cleaner of_scratch(const Launcher& launcher, const Identity& user, const std::string& path);

  /// nullopt: it takes longer. rule: id_ranges of situla.toml, asked for once that is not all there is.
  Result<std::optional<ExitStatus>> run(const std::function<IdRangeRule()>& rule, std::chrono::milliseconds limit);

 private:
  Cleaner(const Launcher& launcher, Launch what) : launcher_(launcher), what_(std::move(what)) {}
  const Launcher& launcher_;
  Launch what_;
};

}  // namespace situla
