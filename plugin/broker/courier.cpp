#include "plugin/broker/courier.hpp"

#include <algorithm>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <syslog.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/protocol/contract.hpp"
#include "common/spec/step_name.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "common/sys/file_systems.hpp"
#include "common/sys/mount/mount_api.hpp"
#include "common/sys/mount/take_tree.hpp"
#include "common/sys/mount_table.hpp"
#include "common/sys/socket.hpp"
#include "common/sys/users.hpp"
#include "plugin/broker/children.hpp"
#include "plugin/broker/events/heard.hpp"
#include "plugin/broker/node/id_ranges.hpp"
#include "plugin/broker/operation.hpp"

namespace situla {
namespace {

using Clock = std::chrono::steady_clock;

constexpr mode_t kIncomingMode = 0755;
constexpr int kMostMounts = 64;

Result<UniqueFd> open_incoming(const SiteConfig& config) {
  const std::string path = incoming_directory(config.store_path);
  TRY_ASSIGN(UniqueFd directory, open_file(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  struct stat status {};
  if (fstat(directory.get(), &status) != 0) return fail_errno(errno, "look at " + path);
  if (status.st_uid != 0 || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return fail(ErrorKind::denied, path + ": others than root may write to it");
  return directory;
}

/// Whose the directory is. None: it is not there, or something is mounted there, which is not asked anything (FUSE):
/// the owner would be whom a user's server names.
std::optional<uid_t> owner_of(int incoming, const std::string& name) {
  const auto directory = open_file_at(incoming, name, O_PATH | O_DIRECTORY | O_NOFOLLOW);
  const auto mount = directory ? mount_id_by_proc(directory->get()) : fail(directory.error());
  const auto ours = mount_id_by_proc(incoming);
  struct stat status {};
  if (!mount || !ours || *mount != *ours || fstat(directory->get(), &status) != 0) return std::nullopt;
  return status.st_uid;
}

/// Whatever becomes of this process, the job's epilog removes the directory.
Result<void> note_for_epilog(const Step& step) {
  TRY(make_directories(kJobsDirectory, 0700));
  return open_file(step_incoming_path(step.request.job_id, step.request.step_id), O_WRONLY | O_CREAT | O_NOFOLLOW, 0600)
      .map([](const UniqueFd&) {});
}

/// "12.0.1000.", and a random end: what user 1000 has had of step 12.0, on its way to be removed.
std::string taken_prefix(const StepName& step, uid_t user) {
  return step.text() + "." + std::to_string(user) + ".";
}

/// "12.0" of "12.0", "12.0.ended" and names of the above kind.
std::optional<StepName> step_of(std::string_view name) {
  return parse_step_name(name.substr(0, name.find('.', name.find('.') + 1)));
}

/// Whose it was.
std::optional<uid_t> taken_from(const std::string& name) {
  const auto step = step_of(name);
  const auto pieces = split(name, '.');
  const auto user = step && pieces.size() == 4 ? parse_unsigned(pieces[2]) : std::nullopt;
  if (!user || *user > UINT32_MAX) return std::nullopt;
  const auto uid = static_cast<uid_t>(*user);
  return is_random_name(name, taken_prefix(*step, uid)) ? std::optional(uid) : std::nullopt;
}

/// He, and who is in his range: what he has given to others of a container.
std::function<bool(uid_t)> ids_of(uid_t user, const SiteConfig& config) {
  const auto account = account_of(user);
  const auto range = account ? range_of(account->identity, config.id_ranges) : std::nullopt;
  return [user, range](uid_t id) {
    return id == user || (range && id >= range->first_uid && id - range->first_uid < IdRange::kCount);
  };
}

/// RootOperation::keep_incoming. Its name goes first: the step may have another one, and the new name says whose it was
/// when it is root's.
Result<void> remove_filled(int incoming, const SiteConfig& config, const std::string& name, Clock::time_point end) {
  if (const auto user = taken_from(name)) return take_and_remove(incoming, name, ids_of(*user, config), end);
  const auto owner = owner_of(incoming, name);
  if (!owner) return fail(ErrorKind::failure, "something is mounted there");
  // A sink: nobody else can have made names in it.
  if (*owner == 0) return remove_tree_at(incoming, name);
  const auto step = step_of(name);
  if (!step) return fail(ErrorKind::corrupt, "it is no step's");
  const std::string taken = random_name(taken_prefix(*step, *owner));
  if (renameat(incoming, name.c_str(), incoming, taken.c_str()) != 0) return fail_errno(errno, "rename it");
  return take_and_remove(incoming, taken, ids_of(*owner, config), end);
}

/// A new one, or in the place of what a step of that number has left, before the controller lost its state. Opened
/// while it is root's: what its user mounts over it later is not looked at.
Result<UniqueFd> make_directory(const Step& step) {
  const std::string path = incoming_directory(step.config.store_path), name = step.name();
  if (mkdir(path.c_str(), kIncomingMode) == 0) {
    if (chmod(path.c_str(), kIncomingMode) != 0) return fail_errno(errno, "set the mode of " + path);
  } else if (errno != EEXIST) {
    return fail_errno(errno, "make directory " + path);
  }
  TRY_ASSIGN(const UniqueFd incoming, open_incoming(step.config));
  remove_incoming(step.config, name, Clock::now() + kEndLimit);
  TRY(note_for_epilog(step));
  if (mkdirat(incoming.get(), name.c_str(), 0700) != 0) return fail_errno(errno, "make directory " + path + "/" + name);
  TRY_ASSIGN(UniqueFd made, open_file_at(incoming.get(), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  if (fchown(made.get(), step.user.uid, step.user.gid) != 0) return fail_errno(errno, "give away " + path + "/" + name);
  return made;
}

/// What lies there when the node has crashed: the notes of it, in /run, are gone, and no epilog will come. Or when
/// there was too much of it for its own job's. A note is made before the directory.
void remove_without_note(const Step& step, const std::vector<std::string>& names) {
  // For all of them: it is another user who waits. Each that stays is a line in the log.
  constexpr std::chrono::seconds kLimit{1};
  constexpr int kMostAtOnce = 8;
  const auto end = Clock::now() + kLimit;
  int tried = 0;
  // Not always the same ones: some may stay for long.
  const size_t first = names.empty() ? 0 : step.request.job_id % names.size();
  for (size_t i = 0; i < names.size() && tried < kMostAtOnce && Clock::now() < end; ++i) {
    const std::string& name = names[(first + i) % names.size()];
    const auto whose = step_of(name);
    if (!whose || access(step_incoming_path(whose->job, whose->step).c_str(), F_OK) == 0) continue;
    remove_incoming(step.config, name, end);
    ++tried;
  }
}

/// Steps of one job may be many: the last ones are enough, for who is that late.
void remove_old_sinks(const Step& step, int incoming, Clock::time_point end) {
  constexpr size_t kMostSinks = 8;
  const std::string path = incoming_directory(step.config.store_path);
  const std::string prefix = std::to_string(step.request.job_id) + ".";
  std::vector<uint64_t> sinks;
  const auto names = list_directory(incoming, path).value_or(std::vector<std::string>());
  remove_without_note(step, names);
  for (const std::string& name : names) {
    const auto number = name.starts_with(prefix) ? parse_unsigned(name.substr(prefix.size())) : std::nullopt;
    if (number && owner_of(incoming, name) == 0) sinks.push_back(*number);
  }
  std::sort(sinks.begin(), sinks.end());
  for (size_t i = 0; i + kMostSinks < sinks.size(); ++i) {
    remove_incoming(step.config, prefix + std::to_string(sinks[i]), end);
    // The notes of the others remind the epilog.
    (void)unlink(step_incoming_path(step.request.job_id, static_cast<uint32_t>(sinks[i])).c_str());
  }
}

/// In the place of the user's directory one of root's, in which each file that a node may send is there already, and
/// keeps nothing: a null device of its own (null(4)), which the user may write to. In one moment, where the file system
/// can do that.
Result<void> leave_sink(const Step& step) {
  constexpr unsigned kNullMajor = 1, kNullMinor = 3;
  const auto end = Clock::now() + kEndLimit;
  // The job's epilog was faster: nobody would remove it.
  if (access(step_incoming_path(step.request.job_id, step.request.step_id).c_str(), F_OK) != 0) {
    remove_incoming(step.config, step.name(), end);
    return {};
  }
  TRY_ASSIGN(const UniqueFd incoming, open_incoming(step.config));
  struct statvfs disk {};
  // Nobody can write to a device there: what comes stays until the job has ended.
  if (fstatvfs(incoming.get(), &disk) == 0 && (disk.f_flag & ST_NODEV) != 0) return {};
  remove_old_sinks(step, incoming.get(), end);
  const std::string path = incoming_directory(step.config.store_path) + "/" + step.name();
  const std::string name = step.name() + ".ended";
  TRY(remove_tree_at(incoming.get(), name));
  if (mkdirat(incoming.get(), name.c_str(), kIncomingMode) != 0)
    return fail_errno(errno, "make directory " + path + ".ended");
  TRY_ASSIGN(const UniqueFd made, open_file_at(incoming.get(), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  for (uint32_t node = 0; node < step.request.nodes; ++node) {
    for (const char* kind : kIncomingKinds) {
      // One for each: slurmd gives it the mode of the file that was sent.
      const std::string file = incoming_file_name(kind, node);
      if (mknodat(made.get(), file.c_str(), S_IFCHR | 0200, makedev(kNullMajor, kNullMinor)) != 0 ||
          fchownat(made.get(), file.c_str(), step.user.uid, step.user.gid, AT_SYMLINK_NOFOLLOW) != 0)
        return fail_errno(errno, "make null device " + path + ".ended/" + file);
    }
  }
  if (exchange_names(path, path + ".ended")) {
    remove_incoming(step.config, name, end);
    return {};
  }
  remove_incoming(step.config, step.name(), end);
  return rename_new(path + ".ended", path);
}

}  // namespace

bool goes_by_sbcast(const SiteConfig& config) {
  if (config.distribute == Distribute::sbcast) return true;
  return config.distribute == Distribute::shared && mounted_from(config.store_path).kind != FileSystemKind::network;
}

std::optional<Courier> Courier::prepare(const Step& step) {
  const StepRequest& request = step.request;
  if (request.nodes < 2 || request.origin != ImageOrigin::registry || !goes_by_sbcast(step.config)) return std::nullopt;
  auto made = make_directory(step);
  auto between = made ? socket_pair() : fail(made.error());
  if (between) return Courier(std::move(*made), std::move(between->first), std::move(between->second));
  syslog(LOG_WARNING, "job %u step %u: %s: %s: images come from the registry alone", request.job_id, request.step_id,
         phrase(RootOperation::keep_incoming).data(), as_one_line(between.error().message()).c_str());
  return std::nullopt;
}

Result<void> Courier::start(const Step& step) {
  const StepRequest& request = step.request;
  TRY_ASSIGN(CgroupPlace place, step.launcher.cgroups.step());
  Launch courier{Program::courier,
                 {incoming_directory(step.config.store_path) + "/" + step.name(), step.name(),
                  std::to_string(request.node), std::to_string(request.nodes), step.slurm_program("sbcast")},
                 std::move(place),
                 step.user,
                 step.user.uid == 0 ? Rights::user : Rights::reader};
  if (!request.slurm_conf.empty()) courier.arguments.push_back(request.slurm_conf);
  courier.fds = {{courier_line_.get(), courier_fd::kStore}, {directory_.get(), courier_fd::kDirectory}};
  TRY_ASSIGN(helper_, step.launcher.launch_helper(std::move(courier), courier_fd::kBroker));
  courier_line_.reset();
  directory_.reset();
  return {};
}

void Courier::end(const Step& step) {
  store_line_.reset();
  courier_line_.reset();
  helper_.socket.reset();
  if (helper_.process) (void)helper_.process.wait_for(kEndLimit);
  helper_ = Helper{};
  const auto left = leave_sink(step);
  if (left) return;
  syslog(LOG_WARNING, "%s: %s", phrase(RootOperation::keep_incoming).data(), left.error().message().c_str());
  // Without one: what still comes is an error of whoever sends it, and its disk may be what is full.
  for (const std::string& name : {step.name(), step.name() + ".ended"})
    remove_incoming(step.config, name, Clock::now() + kEndLimit);
}

void remove_incoming(const SiteConfig& config, const std::string& step, Clock::time_point end) {
  const auto incoming = open_incoming(config);
  if (!incoming) return;
  const std::string path = incoming_directory(config.store_path) + "/" + step;
  // Nothing is mounted there but by its user (fusermount).
  for (int mounts = 0; mounts < kMostMounts && unmount(path, true);) ++mounts;
  if (unlinkat(incoming->get(), step.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT) return;
  const auto removed = remove_filled(incoming->get(), config, step, end);
  // Another broker may be at it, too.
  if (!removed && removed.error().kind() != ErrorKind::not_found)
    syslog(LOG_WARNING, "%s: %s stays: %s", phrase(RootOperation::keep_incoming).data(), path.c_str(),
           excerpt(removed.error().message()).c_str());
}

void remove_incoming_of(const SiteConfig& config, uint32_t job, Clock::time_point end) {
  for (const std::string& name :
       list_directory(incoming_directory(config.store_path)).value_or(std::vector<std::string>()))
    if (name.starts_with(std::to_string(job) + ".")) remove_incoming(config, name, end);
}

}  // namespace situla
