#include "plugin/client.hpp"

#include <algorithm>
#include <array>
#include <memory>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/spec/image_reference.hpp"
#include "common/sys/file.hpp"
#include "common/sys/namespaces.hpp"
#include "common/sys/process.hpp"
#include "common/sys/seccomp.hpp"
#include "common/sys/socket.hpp"

namespace situla {
namespace {

constexpr size_t kMaxEnvironmentBytes = size_t{64} << 20U;

struct Grant {
  std::string workdir;
  UniqueFd user, mount, cgroup;
  std::string environment;
};

std::string working_directory() {
  const std::unique_ptr<char, decltype(&free)> name(getcwd(nullptr, 0), &free);
  return name ? name.get() : "/";
}

Result<UniqueFd> open_image_file(const std::string& path) {
  auto file = open_file(path, O_RDONLY | O_NONBLOCK);
  if (!file)
    return fail(std::move(file).error().with_context("image").with_hint(
        "a path is looked up on the compute node, relative to the job's directory"));
  struct stat info {};
  if (fstat(file->get(), &info) != 0) return fail_errno(errno, "stat " + path);
  if (!S_ISREG(info.st_mode))
    return fail(Error(ErrorKind::usage, "image " + printable(path) + ": not a regular file")
                    .with_hint("make a squashfs file with: situla import -o image.sqsh docker://..."));
  return file;
}

Result<void> ask(int socket, const StepSession& session, const ContainerSpec& spec, const Environment& job) {
  TRY_ASSIGN(const UniqueFd environment, sealed_memory("situla-environment", job.block()));
  std::vector<int> fds = {environment.get()};
  UniqueFd image;
  if (image_kind(spec.image) == ImageKind::path) {
    TRY_ASSIGN(image, open_image_file(spec.image));
    fds.push_back(image.get());
  }
  return send_packet(socket, encode(Join{session.token(), working_directory()}), fds);
}

Error lost_broker() {
  return Error(ErrorKind::failure, "lost the container's broker while preparing the container")
      .with_hint("it was killed or crashed; the node's system log may say more");
}

Result<Grant> await_grant(int socket, LogSink& log) {
  while (true) {
    auto packet = receive_packet(socket, kMaxMessageBytes);
    if (!packet) return fail(packet.error().errnum() == ECONNRESET ? lost_broker() : std::move(packet).error());
    if (!*packet) return fail(lost_broker());
    TRY_ASSIGN(const Message message, decode((*packet)->bytes));
    if (const auto* note = std::get_if<Note>(&message)) {
      log.write(note->level, note->text);
    } else if (const auto* drawing = std::get_if<Draw>(&message)) {
      (void)write_all(STDERR_FILENO, drawing->bytes);
    } else if (const auto* failure = std::get_if<Failure>(&message)) {
      if (failure->text.empty()) return fail(ErrorKind::cancelled, "");
      return fail(Error(failure->kind, failure->text).with_hint(failure->hint));
    } else if (const auto* joined = std::get_if<Joined>(&message); joined != nullptr && (*packet)->fds.size() == 4) {
      auto& fds = (*packet)->fds;
      TRY_ASSIGN(std::string environment, read_sealed_memory(fds[3].get(), kMaxEnvironmentBytes));
      return Grant{joined->workdir, std::move(fds[0]), std::move(fds[1]), std::move(fds[2]), std::move(environment)};
    } else {
      return fail(ErrorKind::corrupt, "the container's broker sent a message out of turn");
    }
  }
}

Result<void> enter(const Grant& grant, const std::string& workdir) {
  // User namespace first: it brings the capabilities that joining the others needs.
  TRY(join_namespace(grant.user.get(), "user"));
  TRY(join_namespace(grant.cgroup.get(), "cgroup"));
  TRY(join_namespace(grant.mount.get(), "mount"));
  const std::string& directory = workdir.empty() ? grant.workdir : workdir;
  if (chdir(directory.c_str()) != 0)
    return fail(Error::from_errno(errno, "change to directory " + directory + " inside the container")
                    .with_hint("--container-workdir must exist in the image or be mounted"));
  return install_id_filter();
}

JoinedTask task_environment(const Grant& grant, const ContainerSpec& spec, const Environment& job) {
  const auto kept = [&](std::string_view name) {
    return std::find(spec.keep_env.begin(), spec.keep_env.end(), name) != spec.keep_env.end();
  };
  JoinedTask task;
  const Environment container = Environment::from_block(grant.environment);
  for (const auto& [name, value] : container.entries()) {
    // A kept name that is unset or empty outside takes the image's value (COMPAT.md 1, --container-env).
    if (kept(name) && !job.get_or(name, "").empty()) continue;
    task.set.set(name, value);
  }
  for (const char* name : {"LANG", "LANGUAGE", "LC_ALL"})
    if (!kept(name) && !task.set.has(name)) task.unset.emplace_back(name);
  // COMPAT.md 2 item 3: per task, because the container's environment is shared.
  if (task.set.has("PYTORCH_VERSION") || job.has("PYTORCH_VERSION")) {
    if (const auto rank = job.get("SLURM_PROCID")) task.set.set("RANK", *rank);
    if (const auto local_rank = job.get("SLURM_LOCALID")) task.set.set("LOCAL_RANK", *local_rank);
  }
  return task;
}

}  // namespace

Result<JoinedTask> join_container(const StepSession& session, const ContainerSpec& spec, const Environment& job,
                                  LogSink& log) {
  // proctrack/linuxproc spares every process called slurmstepd: under that name a waiting task could not be cancelled.
  const ProcessName name("situla-join");
  TRY_ASSIGN(const UniqueFd socket, connect_to(session.address()));
  // The address is abstract: after the broker's death anybody could take it. listen() was called by root, or it is not
  // ours.
  TRY_ASSIGN(const PeerCredentials peer, peer_credentials(socket.get()));
  if (peer.uid != 0) return fail(ErrorKind::denied, "the container's broker was replaced by a process of another user");
  TRY(ask(socket.get(), session, spec, job));
  TRY_ASSIGN(const Grant grant, await_grant(socket.get(), log));
  TRY(enter(grant, spec.workdir));
  return task_environment(grant, spec, job);
}

}  // namespace situla
