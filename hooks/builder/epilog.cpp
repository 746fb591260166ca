#include <cstdio>

#include <fcntl.h>

#include "common/base/log.hpp"
#include "common/protocol/contract.hpp"
#include "common/sys/file.hpp"
#include "hooks/builder/modes.hpp"
#include "hooks/containers/container_store.hpp"
#include "hooks/run/container_environment.hpp"

namespace situla {
namespace {

/// Standard error is slurmd's log, or nothing.
class StderrLog final : public LogSink {
 public:
  void write(LogLevel level, std::string_view message) noexcept override {
    if (level == LogLevel::warning || level == LogLevel::error)
      (void)std::fprintf(stderr, "situla: %.*s\n", static_cast<int>(message.size()), message.data());
  }
};

Result<Environment> job_environment(const std::string& home) {
  constexpr size_t kMaxBytes = size_t{64} << 20U;
  Environment environment;
  if (fcntl(builder_fd::kEnvironment, F_SETFD, FD_CLOEXEC) == 0) {
    TRY_ASSIGN(const std::string block, read_all(builder_fd::kEnvironment, kMaxBytes));
    environment = preparation_environment(Environment::from_block(block));
  }
  if (!environment.has("HOME")) environment.set("HOME", home);
  return environment;
}

Result<void> remove_all(const std::string& job, const std::string& home, LogSink& log) {
  TRY_ASSIGN(const Environment environment, job_environment(home));
  TRY_ASSIGN(const EnrootConfig config, EnrootConfig::load(environment, log));
  TRY_ASSIGN(const auto containers, list_containers(config, OwnedBy::anybody));
  Result<void> result;
  for (const NamedContainer& container : containers) {
    if (!container.name.starts_with("pyxis_" + job + "_")) continue;
    if (auto removed = remove_container(config, container.name, log); !removed) result = std::move(removed);
  }
  return result;
}

}  // namespace

int remove_job_containers(const std::string& job, const std::string& home) {
  StderrLog log;
  const auto removed = remove_all(job, home, log);
  if (!removed) log.error(removed.error().line());
  return removed ? 0 : 1;
}

}  // namespace situla
