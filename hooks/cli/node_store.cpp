#include "hooks/cli/node_store.hpp"

#include <chrono>

#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/pipe.hpp"
#include "common/sys/socket.hpp"
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

Result<FinishedImages::Copy> fetch(const ImportRequest& request, bool offline, int fd, Progress& progress) {
  ImportRequest question = request;
  question.credentials = {};  // the store asks nobody
  TRY_ASSIGN(const std::string bytes, question.serialize());
  TRY_ASSIGN(const UniqueFd memory, sealed_memory("situla-request", bytes));
  TRY_ASSIGN(const UniqueFd socket, message::ask(message::CopyWanted{offline}, {memory.get(), fd}));
  TRY_ASSIGN(const auto first, message::receive(socket.get()));
  if (const auto* ended = std::get_if<message::Ended>(&first.message)) return fail(ended->kind, ended->text);
  const auto* copying = std::get_if<message::Copying>(&first.message);
  if (copying == nullptr) return fail(ErrorKind::not_found, "the node's store has no such image for this user");
  progress.phase("copying " + format_size(copying->bytes) + " from the node's store");
  if (first.fds.empty()) {
    TRY(watch(socket.get(), fd, copying->bytes, progress));
  } else {
    TRY(pipe_to_file(first.fds[0].get(), fd, copying->bytes, [&](uint64_t done) {
      progress.bytes(done, copying->bytes);
      return !progress.cancelled();
    }));
  }
  TRY_ASSIGN(const auto last, message::receive(socket.get()));
  TRY_ASSIGN(const uint64_t size, size_of(fd));
  if (!std::holds_alternative<message::Copied>(last.message) || size != copying->bytes)
    return fail(ErrorKind::corrupt, "the node's store sent less than the image");
  progress.bytes(size, size);
  return FinishedImages::Copy{copying->manifest, copying->age};
}

}  // namespace

std::optional<FinishedImages::Copy> NodeStore::copy(const ImportRequest& request, bool offline, int fd,
                                                    Progress& progress) {
  auto fetched = fetch(request, offline, fd, progress);
  if (fetched) return *fetched;
  // Without a socket, or the image, nobody has to know.
  const ErrorKind kind = fetched.error().kind();
  if (kind != ErrorKind::not_found && kind != ErrorKind::cancelled)
    progress.note("not copied from the node's store: " + fetched.error().text());
  (void)ftruncate(fd, 0);
  (void)lseek(fd, 0, SEEK_SET);
  return std::nullopt;
}

}  // namespace situla::cli
