#include "plugin/client.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/protocol/messages.hpp"
#include "common/protocol/slurm_inside.hpp"
#include "common/spec/environment.hpp"
#include "common/spec/image_reference.hpp"
#include "common/spec/mount_option.hpp"
#include "common/sys/file.hpp"
#include "common/sys/mount/namespaces.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/process/seccomp.hpp"
#include "common/sys/process/stand_in.hpp"
#include "common/sys/socket.hpp"

namespace situla {
namespace {

constexpr size_t kMaxEnvironmentBytes = size_t{64} << 20U;

/// What the broker has given this task.
struct ReceivedContainer {
  std::string workdir;
  NamespaceFds namespaces;
  std::string environment;
  bool has_range = false;  ///< as JoinReply::has_range
  std::string slurm_inside;
};

/// What is the same for all tasks of a node is said by the first of them; the others only fail.
Error said_once(Error error, const Environment& job) {
  return job.get_or("SLURM_LOCALID", "0") == "0" ? std::move(error) : Error(ErrorKind::cancelled, "");
}

/// Said before the image is waited for, by a task: it sees the files as the container will, which may have a /tmp of
/// the job's own. The builder looks again. What a named container gets is known only when it is found.
Result<void> check_mount_sources(const ContainerSpec& spec, const Environment& job) {
  if (!spec.name.empty()) return {};
  for (const MountOption& mount : spec.mounts) {
    const auto has = [&](const char* flag) {
      return std::find(mount.flags.begin(), mount.flags.end(), flag) != mount.flags.end();
    };
    if (mount.kind != MountOption::Kind::bind || has("nofail")) continue;
    const std::string source = expand_variables(mount.source, job);
    if (is_registry_image(source)) continue;
    struct stat status {};
    if (stat(source.c_str(), &status) == 0) continue;
    // What is in an image the builder sees.
    if (errno == ENOENT || (errno == ENOTDIR && !has("sqsh") && !has("image")))
      return fail(said_once(no_mount_source(mount, source), job));
  }
  return {};
}

Error lost_broker() {
  return Error(ErrorKind::failure, "lost the container's broker while preparing the container")
      .with_code(ErrorCode::helper)
      .with_hint("it was killed or crashed; the node's system log may say more");
}

/// What a socket says whose other end is gone, in words.
template <typename T>
Result<T> or_lost(Result<T> done) {
  const int errnum = done ? 0 : done.error().errnum();
  if (errnum == ECONNREFUSED || errnum == ECONNRESET || errnum == EPIPE) return fail(lost_broker());
  return done;
}

Result<void> ask(int socket, const StepSession& session, const ContainerSpec& spec, const Environment& job) {
  TRY_ASSIGN(const UniqueFd environment, sealed_memory("situla-environment", job.block()));
  std::vector<int> fds = {environment.get()};
  UniqueFd image;
  if (spec.name.empty() && image_kind(spec.image) == ImageKind::path) {
    auto opened = open_image_file(image_path(spec.image, job));
    if (!opened && opened.error().kind() == ErrorKind::not_found)
      return fail(said_once(std::move(opened).error(), job));
    if (!opened) return fail(std::move(opened).error());
    image = std::move(*opened);
    fds.push_back(image.get());
  }
  return or_lost(send_packet(socket, encode(JoinRequest{session.token(), current_directory()}), fds));
}

/// What tasks of `situla prefetch` report: the digest, and where the image was.
constexpr const char* kPrefetchedVariable = "SITULA_PREFETCHED";

Result<ReceivedContainer> unpack(const JoinReply& reply, std::vector<UniqueFd> fds) {
  TRY_ASSIGN(NamespaceFds namespaces, NamespaceFds::take(reply.isolation, fds));
  if (fds.size() != 1) return fail(ErrorKind::corrupt, "the container's broker sent a container without environment");
  TRY_ASSIGN(std::string environment, read_sealed_memory(fds[0].get(), kMaxEnvironmentBytes));
  return ReceivedContainer{reply.workdir, std::move(namespaces), std::move(environment), reply.has_range,
                           reply.slurm_inside};
}

struct Reply {
  Message message;  ///< JoinReply or Prefetched
  std::vector<UniqueFd> fds;
};

/// A task that waits is ended by a signal, and what is drawn stands below the cursor, where the shell's prompt comes
/// next: it goes first. srun passes on whole lines only.
class CleanScreen {
 public:
  CleanScreen() = default;
  CleanScreen(const CleanScreen&) = delete;
  CleanScreen& operator=(const CleanScreen&) = delete;
  ~CleanScreen() {
    for (size_t i = 0; drawn_ && i < kSignals.size(); ++i) (void)sigaction(kSignals.at(i), &before_.at(i), nullptr);
  }

  void draws() {
    if (std::exchange(drawn_, true)) return;
    struct sigaction action {};
    action.sa_handler = [](int signal) {
      constexpr std::string_view kEraseBelow = "\x1b[J\n";
      (void)!write(STDERR_FILENO, kEraseBelow.data(), kEraseBelow.size());
      (void)raise(signal);
    };
    action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_NODEFER;
    for (size_t i = 0; i < kSignals.size(); ++i) (void)sigaction(kSignals.at(i), &action, &before_.at(i));
  }

 private:
  static constexpr std::array<int, 3> kSignals = {SIGINT, SIGTERM, SIGHUP};
  bool drawn_ = false;
  std::array<struct sigaction, kSignals.size()> before_{};
};

/// monitor: nullptr where srun listens for nothing.
Result<Reply> await_reply(int socket, MonitorLine* monitor, LogSink& log) {
  CleanScreen screen;
  while (true) {
    const auto waited = monitor == nullptr ? wait_for_packet(socket, kSilence) : monitor->wait_beside(socket, kSilence);
    if (!waited) {
      if (waited.error().errnum() != 0) return fail(waited.error());
      return fail(Error(ErrorKind::failure, "the container's broker has given no sign of life for " +
                                                std::to_string(kSilence.count()) + " s")
                      .with_code(ErrorCode::helper)
                      .with_hint("it hangs or was stopped; the node's system log may say more"));
    }
    TRY_ASSIGN(auto packet, or_lost(receive_packet(socket, kMaxMessageBytes)));
    if (!packet) return fail(lost_broker());
    TRY_ASSIGN(Message message, decode(packet->bytes));
    if (const auto* note = std::get_if<Note>(&message)) {
      if (!note->of_progress || monitor == nullptr || !monitor->is_heard()) log.write(note->level, note->text);
    } else if (const auto* waits = std::get_if<ImportWaits>(&message)) {
      if (monitor != nullptr) monitor->tell(*waits);
    } else if (const auto* progress = std::get_if<ImportProgress>(&message)) {
      if (monitor != nullptr) monitor->tell(*progress);
    } else if (const auto* drawing = std::get_if<Draw>(&message)) {
      if (monitor != nullptr && monitor->is_heard()) continue;
      screen.draws();
      (void)write_all(STDERR_FILENO, drawing->bytes);
    } else if (std::holds_alternative<Alive>(message)) {
      continue;
    } else if (const auto* failure = std::get_if<Failure>(&message)) {
      if (failure->text.empty()) return fail(ErrorKind::cancelled, "");
      return fail(failure->error());
    } else if (std::holds_alternative<JoinReply>(message) || std::holds_alternative<Prefetched>(message)) {
      return Reply{std::move(message), std::move(packet->fds)};
    } else {
      return fail(ErrorKind::corrupt, "the container's broker sent a message out of turn");
    }
  }
}

/// Tells the broker that the program has ended. The last one's answer takes as long as the save; the broker gives it up
/// when this process ends first. It bears no name that Slurm would spare.
bool is_saved(int socket) {
  (void)prctl(PR_SET_NAME, "situla-save");
  if (!send_packet(socket, encode(TaskEnded{}))) return false;
  const auto packet = receive_packet(socket, kMaxMessageBytes);
  if (!packet || !*packet) return false;
  const auto message = decode((*packet)->bytes);
  return message && std::holds_alternative<Finished>(*message);
}

/// Slurm goes on in a child, which is inside the PID namespace; the task that Slurm knows waits for it and ends as it
/// does. Signals shall come once, whoever tracks processes: linuxproc, which signals the whole tree, spares what is
/// called slurmstepd, and so reaches the child alone; cgroup reaches the task alone, which passes them on; pgid reaches
/// the one that is in the group. With --container-save the task ends after the save, because Slurm takes the exit
/// status of a step from its tasks and from nothing else.
Result<void> continue_in_child(const ReceivedContainer& container, bool save, int socket) {
  const ProcessName spared("slurmstepd");
  const LastAct saving{{socket}, [socket] { return is_saved(socket); }};
  // Whatever is in a PID namespace is killed with it.
  const StandInFor whom = container.namespaces.isolation.pid ? StandInFor::slurm : StandInFor::slurm_group;
  TRY_ASSIGN(const std::optional<int> ended, stand_in_for_child(whom, save ? &saving : nullptr));
  if (ended) _exit(*ended);
  return {};
}

/// --container-unshare of a container that was made by another step, or by hand: it has what it has (COMPAT.md 1).
Result<void> check_isolation(const Isolation& wanted, const Isolation& has) {
  const std::array<std::tuple<bool, bool, const char*>, 4> rows = {{{wanted.net, has.net, "network"},
                                                                    {wanted.ipc, has.ipc, "IPC"},
                                                                    {wanted.uts, has.uts, "UTS"},
                                                                    {wanted.pid, has.pid, "PID"}}};
  for (const auto& [asked, there, name] : rows)
    if (asked && !there)
      return fail(
          Error(ErrorKind::usage,
                std::string("--container-unshare: the running container is not in a separate ") + name + " namespace")
              .with_code(ErrorCode::option)
              .with_hint("leave the option out, or start a container of its own with --container-name=NAME:no_exec"));
  return {};
}

/// In the order in which the descriptors come. The PID namespace is that of children only: stand_in_for_child()
/// follows.
Result<void> join_others(const ReceivedContainer& container) {
  const std::array<std::pair<bool, const char*>, 4> rows = {{{container.namespaces.isolation.ipc, "IPC"},
                                                             {container.namespaces.isolation.uts, "UTS"},
                                                             {container.namespaces.isolation.net, "network"},
                                                             {container.namespaces.isolation.pid, "PID"}}};
  size_t next = 0;
  for (const auto& [has, name] : rows)
    if (has) TRY(join_namespace(container.namespaces.others[next++].get(), name));
  return {};
}

Result<std::string> enter(const ReceivedContainer& container, const ContainerSpec& spec, int socket) {
  // User namespace first: it brings the capabilities that joining the others needs.
  TRY(join_namespace(container.namespaces.user.get(), "user"));
  TRY(join_namespace(container.namespaces.cgroup.get(), "cgroup"));
  TRY(join_namespace(container.namespaces.mount.get(), "mount"));
  TRY(join_others(container));
  std::string directory = spec.workdir.empty() ? container.workdir : spec.workdir;
  if (!directory.starts_with('/')) directory = '/' + directory;
  if (chdir(directory.c_str()) != 0)
    return fail(Error::from_errno(errno, "change to directory " + directory + " inside the container")
                    .with_code(ErrorCode::workdir)
                    .with_hint("--container-workdir must exist in the image or be mounted"));
  if (const bool save = !spec.save.empty(); save || container.namespaces.isolation.pid)
    TRY(continue_in_child(container, save, socket));
  // With a range chown and the like work, and nothing is pretended.
  if (!container.has_range) TRY(install_id_filter());
  return directory;
}

/// What hooks say of the step that begins, and nobody else can.
bool is_of_new_step(std::string_view variable) {
  return variable.starts_with("PMIX_MCA_") || variable == "MASTER_ADDR" || variable == "MASTER_PORT";
}

/// Of an srun that was typed in a container like this: its tasks have the variables that it had, and no others.
void take_inner_variables(const Environment& job, JoinedTask& task) {
  Environment inner;
  for (const auto& [name, value] : job.entries()) {
    if (!name.starts_with(kKeptPrefix)) continue;
    task.unset.push_back(name);
    if (name.size() > kKeptPrefix.size()) inner.set(std::string_view(name).substr(kKeptPrefix.size()), value);
  }
  const auto is_left_out = [&](const std::string& name) { return !is_of_task(name) && !inner.has(name); };
  // With --export=NAME,... they are not all: the others are the image's.
  if (job.has(kKeptPrefix)) {
    const Environment of_image = task.set;
    for (const auto& [name, value] : of_image.entries())
      if (is_left_out(name) && !is_of_new_step(name)) {
        task.set.unset(name);
        task.unset.push_back(name);
      }
    for (const auto& [name, value] : job.entries())
      if (is_left_out(name)) task.unset.push_back(name);
  }
  task.set.merge(inner);
}

/// In front of PATH, whatever else is there: an image's own commands know nothing of this cluster.
void add_slurm_commands(const ReceivedContainer& container, const Environment& job, JoinedTask& task) {
  if (container.slurm_inside.empty()) {
    if (job.has(kSlurmInsideVariable)) task.unset.emplace_back(kSlurmInsideVariable);
    return;
  }
  task.set.set(kSlurmInsideVariable, container.slurm_inside);
  const std::string path = task.set.get_or("PATH", job.get_or("PATH", "/usr/local/bin:/usr/bin:/bin"));
  const std::string front = std::string(kSlurmInsideDirectory) + ":";
  if (!path.starts_with(front)) task.set.set("PATH", front + path);
}

JoinedTask task_environment(const ReceivedContainer& container, const ContainerSpec& spec, const Environment& job) {
  const auto kept = [&](std::string_view name) {
    return std::find(spec.keep_env.begin(), spec.keep_env.end(), name) != spec.keep_env.end();
  };
  JoinedTask task;
  const Environment inside = Environment::from_block(container.environment);
  for (const auto& [name, value] : inside.entries()) {
    // A kept name that is unset or empty outside takes the image's value (COMPAT.md 1, --container-env).
    if (kept(name) && !job.get_or(name, "").empty()) continue;
    task.set.set(name, value);
  }
  for (const char* name : {"LANG", "LANGUAGE", "LC_ALL"})
    if (!kept(name) && !task.set.has(name)) task.unset.emplace_back(name);
  for (const std::string& variable : spec.variables) {
    const std::string name = variable.substr(0, variable.find('='));
    if (variable.size() == name.size() + 1 && !kept(name) && !task.set.has(name)) task.unset.push_back(name);
  }
  take_inner_variables(job, task);
  add_slurm_commands(container, job, task);
  // COMPAT.md 2 item 3: per task, because the container's environment is shared.
  if (task.set.has("PYTORCH_VERSION") || job.has("PYTORCH_VERSION")) {
    if (const auto rank = job.get("SLURM_PROCID")) task.set.set("RANK", *rank);
    if (const auto local_rank = job.get("SLURM_LOCALID")) task.set.set("LOCAL_RANK", *local_rank);
  }
  return task;
}

}  // namespace

Result<JoinedTask> join_container(const StepSession& session, const ContainerSpec& spec, const Environment& job,
                                  MonitorLine* monitor, LogSink& log) {
  // proctrack/linuxproc spares every process called slurmstepd: under that name a waiting task could not be cancelled.
  const ProcessName name("situla-join");
  TRY_ASSIGN(const UniqueFd socket, or_lost(connect_to(session.address())));
  // The address is abstract: after the broker's death anybody could take it. listen() was called by root, or it is not
  // ours.
  TRY_ASSIGN(const PeerCredentials peer, peer_credentials(socket.get()));
  if (peer.uid != 0) return fail(ErrorKind::denied, "the container's broker was replaced by a process of another user");
  TRY(check_mount_sources(spec, job));
  TRY(ask(socket.get(), session, spec, job));
  TRY_ASSIGN(Reply reply, await_reply(socket.get(), monitor, log));
  if (monitor != nullptr) monitor->end_import();
  if (const auto* fetched = std::get_if<Prefetched>(&reply.message)) {
    JoinedTask outside;
    outside.set.set(kPrefetchedVariable, fetched->digest + (fetched->stored ? " store" : " registry"));
    return outside;
  }
  TRY_ASSIGN(const ReceivedContainer container, unpack(std::get<JoinReply>(reply.message), std::move(reply.fds)));
  TRY(check_isolation(spec.unshare, container.namespaces.isolation));
  TRY_ASSIGN(const std::string directory, enter(container, spec, socket.get()));
  JoinedTask task = task_environment(container, spec, job);
  task.set.set("PWD", directory);
  if (!spec.save.empty() && !container.namespaces.isolation.pid)
    task.set.set("SLURM_TASK_PID", std::to_string(getpid()));
  return task;
}

}  // namespace situla
