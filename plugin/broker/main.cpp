// situla-broker: the root side of one step on one node. Started by the plugin in slurmstepd; see plugin/README.md.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string_view>
#include <thread>

#include <fcntl.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/cgroup.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process.hpp"
#include "common/sys/socket.hpp"
#include "plugin/broker/broker.hpp"
#include "plugin/broker/contract.hpp"
#include "plugin/broker/operation.hpp"

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

Result<Launcher> make_launcher(Result<NodeCgroups> cgroups) {
  if (!cgroups) return fail(std::move(cgroups).error().with_context(phrase(RootOperation::own_cgroups)));
  TRY_ASSIGN(Programs programs, Programs::open());
  return Launcher{std::move(programs), std::move(*cgroups)};
}

int serve() {
  openlog("situla-broker", LOG_PID, LOG_DAEMON);
  auto input = take_input();
  if (!input) {
    syslog(LOG_ERR, "%s", input.error().message().c_str());
    (void)std::fprintf(stderr, "situla-broker: %s\n", input.error().text().c_str());
    return 1;
  }
  auto launcher = make_launcher(NodeCgroups::enter(input->request.job_id, input->request.step_id, input->request.uid));
  Broker broker(std::move(*input), SiteConfig::load(SITULA_SYSCONF_DIR "/situla.toml"), std::move(launcher));
  broker.run();
  return 0;
}

/// RootOperation::keep_scratch: what a killed broker could not have removed is removed by its user.
void remove_scratch(const Launcher& launcher, const std::string& path) {
  const auto noted = read_file(path);
  const auto parts = noted ? cut(*noted, '\n') : std::nullopt;
  const auto uid = parts ? parse_unsigned(parts->first) : std::nullopt;
  const auto account = uid && *uid <= UINT32_MAX ? account_of(static_cast<uid_t>(*uid)) : fail(ErrorKind::corrupt, "");
  if (!account) return;
  if (auto cleaner = start_cleaner(launcher, account->identity, std::string(parts->second)))
    (void)cleaner->wait_for(kEndLimit);
  (void)unlink(path.c_str());
}

/// Of all steps of a job that has ended.
void remove_scratches(const Launcher& launcher, uint32_t job) {
  const auto names = list_directory(kJobsDirectory);
  if (!names) return;
  for (const std::string& name : *names)
    if (name.starts_with(std::to_string(job) + ".") && name.ends_with(".scratch"))
      remove_scratch(launcher, std::string(kJobsDirectory) + "/" + name);
}

/// After a broker was killed, when its step has ended: what the next one would find and drop is dropped now.
int sweep(const std::string& job, const std::string& step, const std::string& user) {
  const auto config = SiteConfig::load(SITULA_SYSCONF_DIR "/situla.toml");
  if (!config) return 1;
  if (const auto mounts = ImageMounts::open(SITULA_RUNTIME_DIR)) mounts->drop_idle(config->image_mount_idle);
  sweep_running(SITULA_RUNTIME_DIR);
  const auto launcher =
      make_launcher(NodeCgroups::enter_after_jobs(static_cast<uid_t>(parse_unsigned(user).value_or(0))));
  if (!launcher) return 1;
  const auto job_id = parse_unsigned(job);
  const auto step_id = parse_unsigned(step);
  if (job_id && step_id && *job_id <= UINT32_MAX && *step_id <= UINT32_MAX)
    remove_scratch(*launcher, step_scratch_path(static_cast<uint32_t>(*job_id), static_cast<uint32_t>(*step_id)));
  auto sweeper = start_store_sweeper(*launcher, *config);
  return sweeper && sweeper->wait() ? 0 : 1;
}

/// Its user removes the job's containers.
Result<void> remove_containers(const Launcher& launcher, uint32_t job, uid_t user) {
  const std::string path = job_environment_path(job);
  // Nobody else has a name in that directory.
  const auto environment = open_file(path, O_RDONLY | O_NOFOLLOW);
  TRY_ASSIGN(Child cleaner, start_job_cleaner(launcher, user, job, environment ? environment->get() : -1));
  TRY_ASSIGN(const ExitStatus status, cleaner.wait());
  (void)unlink(path.c_str());
  if (status.success()) return {};
  return fail(ErrorKind::failure, "the cleaner " + status.text());
}

/// What a named container's builder, its hooks and what serves its files have left in the job's cgroups, which no step
/// ends: with the job ends every process of it, or a user would keep its GPUs, processors and memory.
void end_job(uint32_t job) {
  constexpr std::chrono::seconds kLimit{10};
  constexpr std::chrono::milliseconds kPause{20};
  const std::string path = job_cgroups_path(job);
  const auto cgroups = read_file(path);
  if (!cgroups) return;
  const std::string name = "job_" + std::to_string(job);
  const auto end = std::chrono::steady_clock::now() + kLimit;
  bool gone = false;
  while (!gone && std::chrono::steady_clock::now() < end) {
    gone = kill_cgroups(*cgroups, name);
    gone = remove_empty_cgroups(*cgroups, name) && gone;
    if (!gone) std::this_thread::sleep_for(kPause);
  }
  if (!gone) syslog(LOG_ERR, "job %u: processes or cgroups of it are still there after SIGKILL", job);
  (void)unlink(path.c_str());
  // One of its brokers may have been killed.
  sweep_running(SITULA_RUNTIME_DIR);
}

/// After a job, in slurmd's epilog. scope: "job" when named containers end with their job.
int epilog(const std::string& job_text, const std::string& uid_text, std::string_view scope) {
  openlog("situla-broker", LOG_PID, LOG_DAEMON);
  const auto job = parse_unsigned(job_text);
  const auto uid = parse_unsigned(uid_text);
  if (!job || !uid || *job > UINT32_MAX || *uid > UINT32_MAX) return 2;
  const auto id = static_cast<uint32_t>(*job);
  const auto clean = [&]() -> Result<void> {
    TRY_ASSIGN(const Launcher launcher, make_launcher(NodeCgroups::enter_after_jobs(static_cast<uid_t>(*uid))));
    remove_scratches(launcher, id);
    return scope == "job" ? remove_containers(launcher, id, static_cast<uid_t>(*uid)) : Result<void>();
  };
  const auto removed = clean();
  if (!removed)
    syslog(LOG_ERR, "removing the containers of job %s: %s", job_text.c_str(), removed.error().message().c_str());
  end_job(id);
  return removed ? 0 : 1;
}

/// A process of the step, for the plugin to see when Slurm ends the step. Other signals are for the user's programs.
int wait_to_be_killed() {
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM}) (void)std::signal(number, SIG_IGN);
  for (;;) pause();
}

}  // namespace
}  // namespace situla

int main(int argc, char** argv) {
  situla::take_program_name();
  if (argc == 5 && std::string_view(argv[1]) == "sweep") return situla::sweep(argv[2], argv[3], argv[4]);
  if (argc == 2 && std::string_view(argv[1]) == "canary") return situla::wait_to_be_killed();
  umask(022);
  if (argc == 5 && std::string_view(argv[1]) == "epilog") return situla::epilog(argv[2], argv[3], argv[4]);
  (void)std::signal(SIGPIPE, SIG_IGN);
  return situla::serve();
}
