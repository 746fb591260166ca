#include "plugin/broker/node/running.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/protocol/messages.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "common/sys/socket.hpp"

namespace situla {
namespace {

std::string directory_of(const std::string& runtime, const RunningKey& key) {
  return runtime + "/containers/" + key.text();
}

std::vector<UniqueFd> connect_to_all(const std::string& directory) {
  std::vector<UniqueFd> connections;
  const auto names = list_directory(directory);
  if (!names) return connections;
  for (const std::string& name : *names) {
    if (name.starts_with('.')) continue;
    const std::string path = directory + "/" + name;
    auto connection = connect_to(path);
    if (connection)
      connections.push_back(std::move(*connection));
    else if (connection.error().errnum() == ECONNREFUSED)
      (void)unlink(path.c_str());
  }
  if (connections.empty()) (void)rmdir(directory.c_str());
  return connections;
}

using DirectoryId = std::pair<dev_t, uint64_t>;

/// As the kernel has it in memory: a file system of the user's is not asked, for it need not answer.
Result<DirectoryId> id_of(int fd) {
  struct statx info {};
  if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO, &info) != 0)
    return fail_errno(errno, "inspect the container's directory");
  if (!S_ISDIR(info.stx_mode)) return fail(ErrorKind::corrupt, "the container is no directory");
  return DirectoryId{makedev(info.stx_dev_major, info.stx_dev_minor), info.stx_ino};
}

bool same_directory(int one, int other) {
  const auto a = id_of(one);
  const auto b = id_of(other);
  return a && b && *a == *b;
}

}  // namespace

Result<RunningKey> RunningKey::of_container(uid_t uid, std::string_view identity, int directory) {
  constexpr size_t kDigits = 32;
  const std::string user = std::to_string(uid) + ".";
  if (identity.size() == kDigits && identity.find_first_not_of("0123456789abcdef") == std::string_view::npos)
    return RunningKey(user + std::string(identity));
  TRY_ASSIGN(const DirectoryId id, id_of(directory));
  return RunningKey(user + "inode." + std::to_string(id.first) + "." + std::to_string(id.second));
}

RunningKey RunningKey::of_step(uid_t uid, uint32_t job, uint32_t step) {
  return RunningKey(std::to_string(uid) + ".step." + std::to_string(job) + "." + std::to_string(step));
}

Result<RunningContainer> RunningContainer::publish(const std::string& runtime, const RunningKey& key,
                                                   UniqueFd directory_fd, uint32_t job, uint32_t step) {
  constexpr int kAttempts = 100;
  const std::string directory = directory_of(runtime, key);
  const std::string path = directory + "/" + std::to_string(job) + "." + std::to_string(step);
  TRY(make_directories(runtime + "/containers", 0700));
  for (int attempt = 0;; ++attempt) {
    if (auto made = make_directories(directory, 0700); !made) {
      (void)rmdir(directory.c_str());
      return fail(std::move(made).error());
    }
    // It gets its name when somebody listens: a socket with nobody behind it is taken for a killed broker's.
    const std::string hidden = directory + "/." + std::to_string(job) + "." + std::to_string(step);
    (void)unlink(hidden.c_str());
    auto listener = listen_at(hidden);
    if (listener && rename(hidden.c_str(), path.c_str()) == 0)
      return RunningContainer(std::move(*listener), std::move(directory_fd), path);
    // The last other step that ran it has just removed the directory.
    const Error error = listener ? Error::from_errno(errno, "rename " + hidden) : listener.error();
    if (error.errnum() == ENOENT && attempt < kAttempts) continue;
    (void)unlink(hidden.c_str());
    (void)rmdir(directory.c_str());
    return fail(error);
  }
}

RunningContainer::~RunningContainer() {
  if (!listener_) return;
  (void)unlink(path_.c_str());
  (void)rmdir(path_.substr(0, path_.rfind('/')).c_str());
}

void forget_running(const std::string& runtime, uint32_t job, std::optional<uint32_t> step) {
  const std::string of_job = std::to_string(job) + ".";
  const std::string of_step = step ? of_job + std::to_string(*step) : "";
  for (const std::string& key : list_directory(runtime + "/containers").value_or(std::vector<std::string>())) {
    const std::string directory = runtime + "/containers/" + key;
    for (const std::string& name : list_directory(directory).value_or(std::vector<std::string>())) {
      // One that has no name yet begins with a dot.
      const std::string_view whose = std::string_view(name).substr(name.starts_with('.') ? 1 : 0);
      if (step ? whose == of_step : whose.starts_with(of_job)) (void)unlink((directory + "/" + name).c_str());
    }
    (void)rmdir(directory.c_str());  // refused while another step runs it
  }
}

Result<std::optional<StepContainer>> find_running(const std::string& runtime, const RunningKey& key,
                                                  const UniqueFd& directory) {
  constexpr std::chrono::milliseconds kLimit{3000};
  const auto end = std::chrono::steady_clock::now() + kLimit;
  bool is_of_other_release = false;
  for (const UniqueFd& connection : connect_to_all(directory_of(runtime, key))) {
    // The other broker answers at once, or is ending its container.
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (!wait_for_packet(connection.get(), std::max(left, std::chrono::milliseconds::zero()))) continue;
    auto packet = receive_packet(connection.get(), kMaxMessageBytes);
    const auto message = packet && *packet ? decode((*packet)->bytes) : fail(ErrorKind::cancelled, "");
    if (packet && *packet && !message) is_of_other_release = true;
    const auto* reply = message ? std::get_if<JoinReply>(&*message) : nullptr;
    if (reply == nullptr) continue;
    std::vector<UniqueFd>& given = (*packet)->fds;
    auto namespaces = NamespaceFds::take(reply->isolation, given);
    if (!namespaces || given.size() != (directory ? 2U : 1U)) continue;
    if (directory && !same_directory(given[1].get(), directory.get())) continue;
    return std::optional(StepContainer{std::move(*namespaces), reply->workdir, std::move(given[0]), reply->has_range});
  }
  if (is_of_other_release)
    return fail(Error(ErrorKind::unsupported,
                      "the container runs in a step that began with another release of Situla, and cannot be joined")
                    .with_code(ErrorCode::installation)
                    .with_hint("until that step has ended, --container-name=NAME:no_exec uses the container's files"));
  return std::optional<StepContainer>();
}

}  // namespace situla
