#include "hooks/cli/node_store.hpp"

#include <chrono>
#include <tuple>

#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/fd_path.hpp"
#include "common/sys/file.hpp"
#include "common/sys/pipe.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/socket.hpp"
#include "hooks/run/container_environment.hpp"
#include "hooks/store/own_store.hpp"
#include "hooks/store/store_socket.hpp"

namespace situla::cli {
namespace {

namespace message = store_socket;

constexpr std::chrono::milliseconds kTick{200};

Result<uint64_t> size_of(int file) {
  struct stat status {};
  if (fstat(file, &status) != 0) return fail_errno(errno, "look at a new file");
  return static_cast<uint64_t>(status.st_size);
}

/// While the store writes into the file.
Result<void> watch(int socket, int file, uint64_t bytes, Progress& progress) {
  while (!wait_for_packet(socket, kTick)) {
    if (progress.cancelled()) return fail(ErrorKind::cancelled, "cancelled");
    TRY_ASSIGN(const uint64_t done, size_of(file));
    progress.bytes(done, bytes);
  }
  return {};
}

/// Somebody who answers.
struct Asked {
  UniqueFd socket;
  std::string store;  ///< as the user knows it
  Child program{};    ///< none: systemd has started it
};

Result<Asked> ask_own(const Context& context, const message::CopyWanted& question, const std::vector<int>& fds) {
  constexpr int kUser = 0, kStore = 3;  // in the program: store_fd::kUser, and whose store it is
  // As steps have it, whose environment does not say where the cache is.
  TRY_ASSIGN(const EnrootConfig config,
             EnrootConfig::load(preparation_environment(context.invocation.environment), context.log));
  TRY_ASSIGN(const OwnStore own, OwnStore::find(config));
  TRY_ASSIGN(auto line, socket_pair());
  SpawnOptions options;
  TRY_ASSIGN(options.program, find_installed("situla-store"));
  options.arguments = {"situla-store", "--answer", "--store", fd_path(kStore)};
  options.environment = {"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8"};
  options.fds = {{line.second.get(), kUser}, {own.fd(), kStore}};
  Asked asked{std::move(line.first), "your own store"};
  TRY_ASSIGN(asked.program, spawn(options));
  TRY(send_packet(asked.socket.get(), message::encode(question), fds));
  return asked;
}

Result<Asked> ask(const Context& context, const message::CopyWanted& question, const std::vector<int>& fds) {
  auto socket = message::ask(question, fds);
  if (socket) return Asked{std::move(*socket), "the node's store"};
  if (socket.error().kind() != ErrorKind::not_found) return fail(socket.error());
  return ask_own(context, question, fds);
}

Result<FinishedImages::Copy> fetch(const Context& context, const ImportRequest& request, bool offline, int fd,
                                   Progress& progress) {
  ImportRequest question = request;
  question.credentials = {};  // the store asks nobody
  TRY_ASSIGN(const std::string bytes, question.serialize());
  TRY_ASSIGN(const UniqueFd memory, sealed_memory("situla-request", bytes));
  TRY_ASSIGN(const Asked asked, ask(context, {offline}, {memory.get(), fd}));
  const int socket = asked.socket.get();
  TRY_ASSIGN(const auto first, message::receive(socket));
  if (const auto* ended = std::get_if<message::Ended>(&first.message)) return fail(ended->error());
  const auto* copying = std::get_if<message::Copying>(&first.message);
  if (copying == nullptr)
    return fail(Error(ErrorKind::not_found, asked.store + " has no such image for this user")
                    .with_code(ErrorCode::image_not_found));
  progress.phase("copying " + format_size(copying->bytes) + " from " + asked.store);
  if (first.fds.empty()) {
    TRY(watch(socket, fd, copying->bytes, progress));
  } else {
    TRY(pipe_to_file(first.fds[0].get(), fd, copying->bytes, [&](uint64_t done) {
      progress.bytes(done, copying->bytes);
      return !progress.cancelled();
    }));
  }
  TRY_ASSIGN(const auto last, message::receive(socket));
  TRY_ASSIGN(const uint64_t size, size_of(fd));
  if (!std::holds_alternative<message::Copied>(last.message) || size != copying->bytes)
    return fail(ErrorKind::corrupt, asked.store + " sent less than the image");
  progress.bytes(size, size);
  return FinishedImages::Copy{copying->manifest, copying->age};
}

}  // namespace

std::optional<FinishedImages::Copy> NodeStore::copy(const ImportRequest& request, bool offline, int fd,
                                                    Progress& progress) {
  auto fetched = fetch(context_, request, offline, fd, progress);
  if (fetched) return *fetched;
  // Without a socket, or the image, nobody has to know.
  const ErrorKind kind = fetched.error().kind();
  if (kind != ErrorKind::not_found && kind != ErrorKind::cancelled)
    progress.note("not copied from a store of this node: " + fetched.error().message());
  std::ignore = ftruncate(fd, 0);
  (void)lseek(fd, 0, SEEK_SET);
  return std::nullopt;
}

}  // namespace situla::cli
