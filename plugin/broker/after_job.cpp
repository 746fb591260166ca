#include "plugin/broker/after_job.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include <fcntl.h>
#include <syslog.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/protocol/contract.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/cgroup.hpp"
#include "common/sys/socket.hpp"
#include "common/sys/users.hpp"
#include "plugin/broker/children.hpp"
#include "plugin/broker/courier.hpp"
#include "plugin/broker/events/heard.hpp"
#include "plugin/broker/node/cgroup_place.hpp"
#include "plugin/broker/node/running.hpp"
#include "plugin/broker/operation.hpp"

namespace situla {
namespace {

constexpr std::chrono::seconds kRemoveLimit{80};  // of the plugin's 120 for all of an epilog

/// A file of root's own, unless an earlier step of the job has left it.
Result<void> keep(const std::string& path, std::string_view bytes) {
  TRY(make_directories(kJobsDirectory, 0700));
  if (access(path.c_str(), F_OK) == 0) return {};
  return write_file_atomically(path, bytes, 0600, Sync::no);
}

void warn_unless(const Result<void>& kept, RootOperation operation) {
  if (!kept) syslog(LOG_WARNING, "%s: %s", phrase(operation).data(), kept.error().message().c_str());
}

std::optional<uint32_t> parse_id(const std::string& text) {
  const auto number = parse_unsigned(text);
  return number && *number <= UINT32_MAX ? std::optional(static_cast<uint32_t>(*number)) : std::nullopt;
}

/// Nobody has one where situla.toml cannot be read.
IdRangeRule range_rule() {
  auto config = SiteConfig::load(SITULA_SYSCONF_DIR "/situla.toml");
  return config ? config->id_ranges : IdRangeRule{SubordinateFiles::never, {}};
}

using Clock = std::chrono::steady_clock;

std::chrono::milliseconds left_until(Clock::time_point end) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
  return std::max(left, std::chrono::milliseconds(0));
}

std::vector<std::string> notes_of(uint32_t job, std::string_view kind) {
  auto names = list_directory(kJobsDirectory).value_or(std::vector<std::string>());
  const std::string begin = std::to_string(job) + ".";
  std::erase_if(names, [&](const std::string& name) { return !name.starts_with(begin) || !name.ends_with(kind); });
  for (std::string& name : names) name = std::string(kJobsDirectory) + "/" + name;
  return names;
}

/// RootOperation::keep_scratch: what a broker could not have removed, or not in its time, is removed by its user. What
/// is not gone by `end` is noted still.
void remove_scratch(const Launcher& launcher, const std::string& path, Clock::time_point end) {
  const auto noted = read_file(path);
  const auto parts = noted ? cut(*noted, '\n') : std::nullopt;
  const auto uid = parts ? parse_id(std::string(parts->first)) : std::nullopt;
  const auto account = uid ? account_of(*uid) : fail(ErrorKind::corrupt, "");
  if (!account) return;
  Cleaner cleaner = Cleaner::of_scratch(launcher, account->identity, std::string(parts->second));
  const auto cleaned = cleaner.run(range_rule, left_until(end));
  if (cleaned && *cleaned && (*cleaned)->success())
    (void)unlink(path.c_str());
  else
    syslog(LOG_WARNING, "%s: %s is not removed yet", phrase(RootOperation::keep_scratch).data(),
           excerpt(parts->second).c_str());
}

/// Of all steps of a job that has ended. Nobody comes back for what is left when time is up, but the log names it: its
/// notes would stay in memory for ever.
void remove_scratches(const Launcher& launcher, uint32_t job, Clock::time_point end) {
  for (const std::string& note : notes_of(job, kScratchNote)) {
    remove_scratch(launcher, note, end);
    (void)unlink(note.c_str());
  }
}

/// What other nodes of its steps have sent, when no process of the job can bring more.
void remove_arrivals(uint32_t job, uid_t user) {
  const auto notes = notes_of(job, kIncomingNote);
  if (notes.empty()) return;
  const auto config = SiteConfig::load(SITULA_SYSCONF_DIR "/situla.toml");
  if (!config || !NodeCgroups::enter_after_jobs(user)) return;
  remove_incoming_of(*config, job, Clock::now() + kEndLimit);
  // What is left has no other epilog, and needs none: remove_without_note().
  for (const std::string& note : notes) unlink(note.c_str());
}

/// Its user removes the job's containers.
Result<void> remove_containers_of(const Launcher& launcher, uint32_t job, uid_t user, Clock::time_point end) {
  const std::string path = job_environment_path(job, user);
  // Nobody else has a name in that directory.
  const auto environment = open_file(path, O_RDONLY | O_NOFOLLOW);
  TRY_ASSIGN(Cleaner cleaner, Cleaner::of_job(launcher, user, job, environment ? environment->get() : -1));
  TRY_ASSIGN(const auto status, cleaner.run(range_rule, left_until(end)));
  if (!status) return fail(ErrorKind::failure, "it takes too long: some are left");
  if (status->success()) return {};
  return fail(ErrorKind::failure, "the cleaner " + status->text());
}

/// What the job's prolog has begun, and no step has waited for.
void end_import_of(const Launcher& launcher, uint32_t job) {
  constexpr std::chrono::milliseconds kLimit{10000};
  const std::string path = job_import_path(job);
  const auto connection = connect_to(path);
  if (!connection && connection.error().errnum() == ENOENT) return;
  if (connection) (void)wait_for_packet(connection->get(), kLimit);
  if (unlink(path.c_str()) != 0) return;  // it has removed that itself, as the last thing it did
  const auto config = SiteConfig::load(SITULA_SYSCONF_DIR "/situla.toml");
  if (!config) return;
  if (auto sweeper = start_store_sweeper(launcher, *config, std::to_string(job) + ".prolog"))
    (void)sweeper->wait_for(kEndLimit);
}

/// What a named container's builder, its hooks and what serves its files have left in the job's cgroups, which no step
/// ends: with the job ends every process of it, or a user would keep its GPUs, processors and memory.
void end_processes_of(uint32_t job) {
  constexpr std::chrono::seconds kLimit{10}, kOutrun{1};
  constexpr std::chrono::milliseconds kPause{20};
  const std::string path = job_cgroups_path(job);
  const auto cgroups = read_file(path);
  if (!cgroups) return;
  const std::string name = job_component(job, *cgroups).substr(1);
  const auto begin = Clock::now();
  bool gone = false;
  while (!gone && Clock::now() < begin + kLimit) {
    gone = kill_cgroups(*cgroups, name, Clock::now() < begin + kOutrun ? KillBy::list : KillBy::stopping);
    gone = remove_empty_cgroups(*cgroups, name) && gone;
    if (!gone) std::this_thread::sleep_for(kPause);
  }
  if (!gone) syslog(LOG_ERR, "job %u: processes or cgroups of it are still there after SIGKILL", job);
  (void)unlink(path.c_str());
}

}  // namespace

void keep_environment(const Step& step) {
  constexpr size_t kMaxBytes = size_t{4} << 20U;  // in /run, and so in memory
  const auto bytes = read_sealed_memory(step.environment.get(), kMaxBytes);
  warn_unless(bytes ? keep(job_environment_path(step.request.job_id, step.user.uid), *bytes) : fail(bytes.error()),
              RootOperation::keep_environment);
}

void keep_cgroups(const Step& step) {
  const auto cgroups = step.launcher.cgroups.job();
  if (!cgroups || !step.launcher.cgroups.used()) return;
  warn_unless(keep(job_cgroups_path(step.request.job_id), cgroups->text()), RootOperation::end_job);
}

void keep_scratch(const Step& step, const std::string& path) {
  if (path.empty()) return;
  // Of steps whose directories could not be removed, and of those that run.
  constexpr size_t kMostOfJob = 256;
  const auto notes = notes_of(step.request.job_id, kScratchNote);
  const std::string own = step_scratch_path(step.request.job_id, step.request.step_id);
  if (notes.size() >= kMostOfJob && std::find(notes.begin(), notes.end(), own) == notes.end()) return;
  // In the place of one that a job of this number has left, before it was requeued.
  const auto note = [&]() -> Result<void> {
    TRY(make_directories(kJobsDirectory, 0700));
    return write_file_atomically(own, std::to_string(step.user.uid) + "\n" + path, 0600, Sync::no);
  };
  warn_unless(note(), RootOperation::keep_scratch);
}

void forget_scratch(const Step& step) {
  (void)unlink(step_scratch_path(step.request.job_id, step.request.step_id).c_str());
}

int sweep_step(const std::string& job_text, const std::string& step_text, const std::string& user_text) {
  const auto config = SiteConfig::load(SITULA_SYSCONF_DIR "/situla.toml");
  if (!config) return 1;
  if (const auto mounts = ImageMounts::open(SITULA_RUNTIME_DIR)) mounts->drop_idle(config->image_mount_idle);
  const auto launcher = Launcher::open(NodeCgroups::enter_after_jobs(parse_id(user_text).value_or(0)));
  if (!launcher) return 1;
  const auto job = parse_id(job_text), step = parse_id(step_text);
  if (job && step) {
    forget_running(SITULA_RUNTIME_DIR, *job, *step);
    remove_scratch(*launcher, step_scratch_path(*job, *step), Clock::now() + kEndLimit);
    remove_incoming(*config, job_text + "." + step_text, Clock::now() + kEndLimit);
  }
  auto sweeper = start_store_sweeper(*launcher, *config, job_text + "." + step_text);
  return sweeper && sweeper->wait() ? 0 : 1;
}

int end_job(const std::string& job_text, const std::string& user_text, bool remove_containers) {
  openlog("situla-broker", LOG_PID, LOG_DAEMON);
  const auto job = parse_id(job_text), user = parse_id(user_text);
  if (!job || !user) return 2;
  const auto clean = [&]() -> Result<void> {
    TRY_ASSIGN(const Launcher launcher, Launcher::open(NodeCgroups::enter_after_jobs(*user)));
    end_import_of(launcher, *job);
    // Before what takes as long as its user likes: Slurm does not wait for this for ever.
    end_processes_of(*job);
    const auto now = Clock::now();
    // First what nobody would come back for: scratch is noted until it is gone.
    auto gone =
        remove_containers ? remove_containers_of(launcher, *job, *user, now + kRemoveLimit / 2) : Result<void>();
    remove_scratches(launcher, *job, now + kRemoveLimit);
    return gone;
  };
  const auto removed = clean();
  if (!removed) syslog(LOG_ERR, "removing the containers of job %u: %s", *job, removed.error().message().c_str());
  end_processes_of(*job);  // where nothing of that could begin
  remove_arrivals(*job, *user);
  // Also those of a job of another user that had this number.
  for (const std::string& note : notes_of(*job, kEnvironmentNote)) (void)unlink(note.c_str());
  forget_running(SITULA_RUNTIME_DIR, *job);  // one of its brokers may have been killed
  return removed ? 0 : 1;
}

}  // namespace situla
