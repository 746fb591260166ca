#include "plugin/broker/step.hpp"

#include <array>
#include <climits>

#include <fcntl.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/protocol/contract.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/cgroup.hpp"
#include "common/sys/socket.hpp"
#include "common/sys/users.hpp"

namespace situla {
namespace {

Result<Step> open_in(Result<NodeCgroups> cgroups, StepRequest request, UniqueFd environment, UniqueFd slurmstepd) {
  TRY_ASSIGN(SiteConfig config, SiteConfig::load(SITULA_SYSCONF_DIR "/situla.toml"));
  TRY_ASSIGN(Launcher launcher, Launcher::open(std::move(cgroups)));
  TRY_ASSIGN(UniqueFd spec, sealed_memory("situla-spec", request.spec));
  TRY_ASSIGN(ImageMounts mounts, ImageMounts::open(SITULA_RUNTIME_DIR));
  TRY(make_directories(kStageMount, 0755));
  Identity user{request.uid, request.gid, {request.groups.begin(), request.groups.end()}};
  return Step{std::move(request), std::move(user),       std::move(config), std::move(launcher),
              std::move(mounts),  std::move(slurmstepd), std::move(spec),   std::move(environment)};
}

}  // namespace

Result<Step> Step::open(StepRequest request, UniqueFd environment, int control) {
  // Out of the step's cgroup before anything else.
  auto cgroups = NodeCgroups::enter(request.job_id, request.step_id, request.uid);
  // Who made the socket pair, in init_post_opt.
  TRY_ASSIGN(const PeerCredentials parent, peer_credentials(control));
  TRY_ASSIGN(UniqueFd slurmstepd, open_file("/proc/" + std::to_string(parent.pid), O_PATH | O_DIRECTORY));
  return open_in(std::move(cgroups), std::move(request), std::move(environment), std::move(slurmstepd));
}

Result<Step> Step::open_before_job(StepRequest request, UniqueFd environment) {
  auto cgroups = NodeCgroups::enter_before_job(request.job_id, request.uid);
  return open_in(std::move(cgroups), std::move(request), std::move(environment), UniqueFd());
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

std::string Step::slurm_program(const std::string& command) const {
  std::array<char, PATH_MAX> link{};
  const ssize_t length = readlinkat(slurmstepd.get(), "exe", link.data(), link.size());
  std::string path(link.data(), length > 0 ? static_cast<size_t>(length) : 0);
  for (int levels = 0; levels < 2; ++levels) path = path.substr(0, path.rfind('/') == path.npos ? 0 : path.rfind('/'));
  path += "/bin/" + command;
  return access(path.c_str(), X_OK) == 0 ? path : "/usr/bin/" + command;
}

Result<TaskPlace> TaskPlace::of(const Step& step, int proc, std::string directory) {
  TaskPlace place;
  TRY_ASSIGN(place.mounts, open_file_at(proc, "ns/mnt", O_RDONLY));
  TRY_ASSIGN(place.cgroups, cgroups_of(proc));
  TRY(step.launcher.cgroups.check_task(place.cgroups));
  place.directory = std::move(directory);
  return place;
}

}  // namespace situla
