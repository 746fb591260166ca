#include "plugin/broker/step.hpp"

#include <fcntl.h>

#include "common/protocol/contract.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/cgroup.hpp"
#include "common/sys/socket.hpp"
#include "common/sys/users.hpp"

namespace situla {

Result<Step> Step::open(StepRequest request, UniqueFd environment, int control) {
  // Out of the step's cgroup before anything else.
  auto cgroups = NodeCgroups::enter(request.job_id, request.step_id, request.uid);
  TRY_ASSIGN(SiteConfig config, SiteConfig::load(SITULA_SYSCONF_DIR "/situla.toml"));
  TRY_ASSIGN(Launcher launcher, Launcher::open(std::move(cgroups)));
  // Who made the socket pair, in init_post_opt.
  TRY_ASSIGN(const PeerCredentials parent, peer_credentials(control));
  TRY_ASSIGN(UniqueFd slurmstepd, open_file("/proc/" + std::to_string(parent.pid), O_PATH | O_DIRECTORY));
  TRY_ASSIGN(UniqueFd spec, sealed_memory("situla-spec", request.spec));
  TRY_ASSIGN(ImageMounts mounts, ImageMounts::open(SITULA_RUNTIME_DIR));
  TRY(make_directories(kStageMount, 0755));
  Identity user{request.uid, request.gid, {request.groups.begin(), request.groups.end()}};
  return Step{std::move(request), std::move(user),       std::move(config), std::move(launcher),
              std::move(mounts),  std::move(slurmstepd), std::move(spec),   std::move(environment)};
}

Result<void> Step::find_service() {
  if (service) return {};
  auto found = identity_of_user(config.service_user);
  if (found)
    service = std::move(*found);
  else if (found.error().kind() == ErrorKind::not_found)
    no_store = found.error().message();
  else
    return fail(std::move(found).error());
  return {};
}

ImageOrigin Step::origin() const {
  return request.origin == ImageOrigin::registry && !no_store.empty() ? ImageOrigin::user : request.origin;
}

Result<TaskPlace> TaskPlace::of(const Step& step, int proc, std::string directory) {
  TaskPlace place;
  TRY_ASSIGN(place.mounts, open_file_at(proc, "ns/mnt", O_RDONLY));
  TRY_ASSIGN(place.cgroups, cgroups_of(proc));
  TRY(step.launcher.cgroups.check_task(place.cgroups));
  place.directory = std::move(directory);
  return place;
}

void StepReport::begin(std::string_view phase) {
  end();
  running_ = phase;
  begun_ = std::chrono::steady_clock::now();
}

void StepReport::end() {
  if (running_.empty()) return;
  const auto time = std::chrono::steady_clock::now() - begun_;
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
  phases_ += " " + std::exchange(running_, {}) + "=" + std::to_string(milliseconds) + "ms";
}

std::string StepReport::text() const {
  if (root.empty()) return "";
  return (digest.empty() ? "" : "digest=" + digest + " ") + "source=" + source + " mount=" + root + phases_;
}

}  // namespace situla
