// situla-broker: the root side of one step on one node. Started by the plugin in slurmstepd; see plugin/README.md.
#include <csignal>
#include <cstdio>
#include <string_view>

#include <fcntl.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/socket.hpp"
#include "plugin/broker/broker.hpp"
#include "plugin/broker/contract.hpp"

namespace situla {
namespace {

constexpr size_t kMaxRequestBytes = size_t{16} << 20U;

Result<BrokerInput> take_input() {
  BrokerInput input;
  for (const int fd : {broker_fd::kControl, broker_fd::kListener, broker_fd::kRequest, broker_fd::kEnvironment})
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
      return fail(Error::from_errno(errno, "descriptor " + std::to_string(fd))
                      .with_hint("situla-broker is started by spank_situla.so, not by hand"));
  const UniqueFd request(broker_fd::kRequest);
  input.control = UniqueFd(broker_fd::kControl);
  input.listener = UniqueFd(broker_fd::kListener);
  input.environment = UniqueFd(broker_fd::kEnvironment);
  TRY_ASSIGN(const std::string bytes, read_sealed_memory(request.get(), kMaxRequestBytes));
  TRY_ASSIGN(input.request, decode_step_request(bytes));
  return input;
}

int serve() {
  openlog("situla-broker", LOG_PID, LOG_DAEMON);
  auto input = take_input();
  if (!input) {
    syslog(LOG_ERR, "%s", input.error().message().c_str());
    (void)std::fprintf(stderr, "situla-broker: %s\n", input.error().text().c_str());
    return 1;
  }
  Broker broker(std::move(*input), SiteConfig::load(SITULA_SYSCONF_DIR "/situla.toml"));
  broker.run();
  return 0;
}

/// After a broker was killed: what the next one would find and drop is dropped now.
int sweep() {
  const auto config = SiteConfig::load(SITULA_SYSCONF_DIR "/situla.toml");
  if (!config) return 1;
  if (const auto mounts = ImageMounts::open(SITULA_RUNTIME_DIR)) mounts->drop_idle(config->image_mount_idle);
  auto sweeper = start_store_sweeper(*config);
  return sweeper && sweeper->wait() ? 0 : 1;
}

/// After a job, in slurmd's epilog: its user removes the job's containers.
int epilog(const std::string& job_text, const std::string& uid_text) {
  const auto job = parse_unsigned(job_text);
  const auto uid = parse_unsigned(uid_text);
  if (!job || !uid || *job > UINT32_MAX || *uid > UINT32_MAX) return 2;
  const std::string path = job_environment_path(static_cast<uint32_t>(*job));
  // Nobody else has a name in that directory.
  const auto environment = open_file(path, O_RDONLY | O_NOFOLLOW);
  auto cleaner =
      start_job_cleaner(static_cast<uid_t>(*uid), static_cast<uint32_t>(*job), environment ? environment->get() : -1);
  const auto status = cleaner ? cleaner->wait() : fail(cleaner.error());
  (void)unlink(path.c_str());
  if (status && status->success()) return 0;
  syslog(LOG_ERR, "removing the containers of job %s: %s", job_text.c_str(),
         status ? status->text().c_str() : status.error().message().c_str());
  return 1;
}

/// A process of the step, for the plugin to see when Slurm ends the step. Other signals are for the user's programs.
int wait_to_be_killed() {
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM}) (void)std::signal(number, SIG_IGN);
  for (;;) pause();
}

}  // namespace
}  // namespace situla

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "sweep") return situla::sweep();
  if (argc == 2 && std::string_view(argv[1]) == "canary") return situla::wait_to_be_killed();
  umask(022);
  if (argc == 4 && std::string_view(argv[1]) == "epilog") return situla::epilog(argv[2], argv[3]);
  (void)std::signal(SIGPIPE, SIG_IGN);
  return situla::serve();
}
