#include "hooks/builder/input.hpp"

#include <initializer_list>

#include <fcntl.h>
#include <sys/stat.h>

#include "common/protocol/contract.hpp"
#include "common/protocol/messages.hpp"
#include "common/sys/socket.hpp"
#include "hooks/run/container_environment.hpp"

namespace situla {
namespace {

constexpr size_t kMaxSpecBytes = size_t{16} << 20U;
constexpr size_t kMaxEnvironmentBytes = size_t{64} << 20U;

Result<void> keep_from_programs(std::initializer_list<int> fds) {
  for (const int fd : fds)
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) return fail_errno(errno, "descriptor " + std::to_string(fd));
  return {};
}

Result<BuilderData> read_data(int environment) {
  BuilderData data;
  TRY_ASSIGN(const std::string spec, read_sealed_memory(builder_fd::kSpec, kMaxSpecBytes));
  TRY_ASSIGN(data.spec, ContainerSpec::deserialize(spec));
  TRY_ASSIGN(const std::string block, read_sealed_memory(environment, kMaxEnvironmentBytes));
  data.job = Environment::from_block(block);
  data.host = without_host_language(preparation_environment(data.job), data.spec.keep_env);
  return data;
}

}  // namespace

Result<BuilderData> read_builder_data() {
  TRY(keep_from_programs({builder_fd::kBroker, builder_fd::kSpec, builder_fd::kEnvironment}));
  return read_data(builder_fd::kEnvironment);
}

Result<BuilderData> read_task_data() {
  TRY(keep_from_programs(
      {builder_fd::kBroker, builder_fd::kSpec, builder_fd::kTask, builder_fd::kForTasks, builder_fd::kForOthers}));
  (void)fcntl(builder_fd::kSaved, F_SETFD, FD_CLOEXEC);
  const UniqueFd task(builder_fd::kTask);
  // Before anything is received: that may get the number.
  UniqueFd image(fcntl(builder_fd::kImage, F_SETFD, FD_CLOEXEC) == 0 ? builder_fd::kImage : -1);
  auto join = receive_packet(task.get(), kMaxMessageBytes);
  if (!join || !*join || (*join)->fds.empty())
    return fail(ErrorKind::cancelled, "the asking task has ended, or sent no environment");
  std::vector<UniqueFd>& fds = (*join)->fds;
  TRY_ASSIGN(BuilderData data, read_data(fds[0].get()));
  if (fds.size() > 1) data.image = std::move(fds[1]);
  if (image) {
    TRY_ASSIGN(data.image, unpacked(std::move(image)));
  }
  return data;
}

Result<UniqueFd> unpacked(UniqueFd given) {
  struct stat info {};
  if (fstat(given.get(), &info) != 0) return fail_errno(errno, "look at the image's descriptor");
  if (!S_ISSOCK(info.st_mode)) return given;
  TRY_ASSIGN(auto files, take_from_parcel(given.get()));
  return std::move(files[0]);
}

Environment credentials_environment(const BuilderData& data) {
  Environment environment = data.host;
  if (const auto path = data.job.get("PATH")) environment.set("PATH", *path);
  return environment;
}

}  // namespace situla
