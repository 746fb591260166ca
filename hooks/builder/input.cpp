#include "hooks/builder/input.hpp"

#include <algorithm>

#include <fcntl.h>

#include "common/sys/socket.hpp"
#include "hooks/run/container_environment.hpp"
#include "plugin/broker/contract.hpp"

namespace situla {
namespace {

constexpr size_t kMaxSpecBytes = size_t{16} << 20U;
constexpr size_t kMaxEnvironmentBytes = size_t{64} << 20U;

}  // namespace

Result<BuilderData> read_builder_data() {
  for (const int fd : {builder_fd::kBroker, builder_fd::kSpec, builder_fd::kEnvironment})
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) return fail_errno(errno, "descriptor " + std::to_string(fd));
  BuilderData data;
  TRY_ASSIGN(const std::string spec, read_sealed_memory(builder_fd::kSpec, kMaxSpecBytes));
  TRY_ASSIGN(data.spec, ContainerSpec::deserialize(spec));
  TRY_ASSIGN(const std::string block, read_sealed_memory(builder_fd::kEnvironment, kMaxEnvironmentBytes));
  data.job = Environment::from_block(block);
  data.host = preparation_environment(data.job);
  const auto& keep = data.spec.keep_env;
  for (const char* name : {"LANG", "LANGUAGE", "LC_ALL"})
    if (std::find(keep.begin(), keep.end(), name) == keep.end()) data.host.unset(name);
  return data;
}

Environment credentials_environment(const BuilderData& data) {
  Environment environment = data.host;
  if (const auto path = data.job.get("PATH")) environment.set("PATH", *path);
  return environment;
}

}  // namespace situla
