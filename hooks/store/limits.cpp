#include "hooks/store/limits.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"

namespace situla {
namespace {

constexpr std::chrono::milliseconds kPoll{100};

/// nullopt: somebody else has it.
Result<std::optional<UniqueFd>> try_lock(const std::string& path) {
  for (;;) {
    TRY_ASSIGN(UniqueFd fd, open_file(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK || errno == EINTR) return std::nullopt;
      return fail_errno(errno, "lock " + path);
    }
    struct stat status {};
    // Removed between open() and flock(): the lock of a file without a name holds nobody off.
    if (fstat(fd.get(), &status) == 0 && status.st_nlink > 0) return fd;
  }
}

}  // namespace

Result<std::optional<ImportSlot>> ImportSlot::acquire(const std::string& directory, uid_t uid, uint32_t count,
                                                      const std::function<void()>& waiting,
                                                      const std::function<bool()>& done) {
  if (count == 0) return ImportSlot("", UniqueFd());
  std::array<char, 256> node{};
  gethostname(node.data(), node.size() - 1);
  const std::string prefix = directory + "/" + node.data() + "." + std::to_string(uid) + ".";
  for (bool told = false;; std::this_thread::sleep_for(kPoll)) {
    for (uint32_t i = 0; i < count; ++i) {
      const std::string path = prefix + std::to_string(i);
      TRY_ASSIGN(auto locked, try_lock(path));
      if (locked) return ImportSlot(path, std::move(*locked));
    }
    if (done()) return std::nullopt;
    if (!std::exchange(told, true)) waiting();
  }
}

ImportSlot::~ImportSlot() {
  if (fd_) unlink(path_.c_str());
}

void sweep_free_slots(const std::string& directory) {
  const auto names = list_directory(directory);
  if (!names) return;
  for (const std::string& name : *names) {
    const std::string path = directory + "/" + name;
    const auto fd = open_file(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK);
    if (fd && flock(fd->get(), LOCK_EX | LOCK_NB) == 0) unlink(path.c_str());
  }
}

Result<void> StoreReserve::check(const std::string& store) const {
  struct statvfs status {};
  if (statvfs(store.c_str(), &status) != 0) return fail_errno(errno, "ask for the free space of " + store);
  const uint64_t total = uint64_t{status.f_blocks} * status.f_frsize;
  const uint64_t free = uint64_t{status.f_bavail} * status.f_frsize;
  const uint64_t wanted = bytes.value_or(std::min(total / 20, kMostByDefault));
  // A file system that counts nothing (some FUSE, autofs) has no reserve.
  if (total == 0 || free >= wanted) return {};
  return fail(Error(ErrorKind::no_space, "the image store " + store + " has " + format_size(free) + " free, and " +
                                             format_size(wanted) + " have to stay so")
                  .with_hint("remove images that nobody uses from the store, or see store_reserve in "
                             "/etc/situla/situla.toml"));
}

}  // namespace situla
