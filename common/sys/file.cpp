#include "common/sys/file.hpp"

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <memory>
#include <thread>

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/installation.hpp"
#include "common/base/scope_exit.hpp"
#include "common/base/text.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/kernel.hpp"

namespace situla {

std::string current_directory() {
  const std::unique_ptr<char, decltype(&std::free)> path(getcwd(nullptr, 0), &std::free);
  return path ? path.get() : "/";
}

std::string program_directory() {
  std::array<char, PATH_MAX> path{};
  const ssize_t size = readlink("/proc/self/exe", path.data(), path.size());
  const std::string program(path.data(), size > 0 ? static_cast<size_t>(size) : 0);
  return program.substr(0, program.rfind('/'));
}

Result<std::string> find_installed(const std::string& name) {
  const std::string here = program_directory();
  for (const std::string& directory : {here, here + "/../libexec/situla", std::string(libexec_directory())}) {
    std::string path = directory + "/" + name;
    if (access(path.c_str(), F_OK) == 0) return path;
  }
  return fail(Error(ErrorKind::not_found, "file " + name + " of Situla not found")
                  .with_code(ErrorCode::installation)
                  .with_hint("it belongs in " + std::string(libexec_directory()) +
                             " beside Situla's other programs; install them again"));
}

std::string random_name(std::string_view prefix) {
  std::array<uint8_t, 8> bytes{};
  // Before the pool is ready (early boot) the address and pid must do; O_EXCL decides anyway.
  if (getrandom(bytes.data(), bytes.size(), GRND_NONBLOCK) < 0) {
    const auto seed = static_cast<uint64_t>(getpid()) ^ reinterpret_cast<uintptr_t>(&bytes);
    for (size_t i = 0; i < bytes.size(); ++i) bytes.at(i) = static_cast<uint8_t>(seed >> (8 * i));
  }
  return std::string(prefix) + to_hex(bytes.data(), bytes.size());
}

bool is_random_name(std::string_view name, std::string_view prefix) {
  constexpr size_t kDigits = 16;
  return name.starts_with(prefix) && name.size() == prefix.size() + kDigits &&
         name.find_first_not_of("0123456789abcdef", prefix.size()) == name.npos;
}

Result<UniqueFd> open_file(const std::string& path, int flags, mode_t mode) {
  return open_file_at(AT_FDCWD, path, flags, mode);
}

Result<UniqueFd> open_file_at(int directory_fd, const std::string& path, int flags, mode_t mode) {
  UniqueFd fd(kernel::uninterrupted([&] { return openat(directory_fd, path.c_str(), flags | O_CLOEXEC, mode); }));
  if (!fd) return fail_errno(errno, ((flags & O_CREAT) != 0 ? "create " : "open ") + path);
  return fd;
}

std::string similar_image(const std::string& path) {
  constexpr std::string_view kSuffix = ".sqsh";
  const size_t begin = path.rfind('/') + 1;  // npos + 1 is 0
  const std::string directory = path.substr(0, begin), name = path.substr(begin);
  const auto names = names_with_suffix(directory.empty() ? "." : directory, kSuffix);
  if (!names) return {};
  if (const std::string whole = name + std::string(kSuffix);
      std::find(names->begin(), names->end(), whole) != names->end())
    return directory + whole;
  const std::vector<std::string_view> known(names->begin(), names->end());
  const auto near = closest(name, known);
  return near ? directory + std::string(*near) : "";
}

Result<UniqueFd> open_image_file(const std::string& path) {
  auto file = open_file(path, O_RDONLY | O_NONBLOCK);
  if (!file) {
    const std::string similar = file.error().errnum() == ENOENT ? similar_image(path) : "";
    const std::string question = similar.empty() ? "" : "did you mean " + printable(similar) + "? ";
    const bool missing = file.error().kind() == ErrorKind::not_found;
    return fail(std::move(file)
                    .error()
                    .with_context("image")
                    .with_code(missing ? ErrorCode::image_not_found : ErrorCode::image_file)
                    .with_hint(question + "a path is looked up on the compute node, relative to the job's directory"));
  }
  struct stat info {};
  if (fstat(file->get(), &info) != 0) return fail_errno(errno, "stat " + path);
  if (!S_ISREG(info.st_mode))
    return fail(Error(ErrorKind::usage, "image " + printable(path) + ": not a regular file")
                    .with_code(ErrorCode::image_file)
                    .with_hint("make a squashfs file with: situla import -o image.sqsh docker://..."));
  return file;
}

Result<UniqueFd> duplicate_fd(int fd, std::string_view what) {
  UniqueFd copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy) return fail_errno(errno, "duplicate the descriptor of " + std::string(what));
  return copy;
}

Result<std::string> read_all(int fd, size_t limit) {
  std::string bytes;
  // A string that grows takes up to three times its size meanwhile.
  struct stat status {};
  if (fstat(fd, &status) == 0 && status.st_size > 0)
    bytes.reserve(std::min(limit, static_cast<size_t>(status.st_size)));
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t count = kernel::uninterrupted([&] { return read(fd, buffer.data(), buffer.size()); });
    if (count < 0) return fail_errno(errno, "read");
    if (count == 0) return bytes;
    if (bytes.size() + static_cast<size_t>(count) > limit)
      return fail(ErrorKind::corrupt, "read: larger than " + std::to_string(limit) + " bytes");
    bytes.append(buffer.data(), static_cast<size_t>(count));
  }
}

Result<std::string> read_file(const std::string& path, size_t limit) {
  TRY_ASSIGN(const UniqueFd fd, open_file(path, O_RDONLY));
  auto bytes = read_all(fd.get(), limit);
  if (!bytes) return fail(std::move(bytes).error().with_context(path));
  return bytes;
}

Result<void> write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = kernel::uninterrupted([&] { return write(fd, bytes.data(), bytes.size()); });
    if (count < 0) return fail_errno(errno, "write");
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return {};
}

namespace {

/// The long way of copy_range(). Returns how much was copied: a piece of it.
Result<uint64_t> copy_piece(int from, off_t from_offset, int to, off_t to_offset, uint64_t size) {
  constexpr size_t kPiece = size_t{256} << 10U;
  const auto buffer = std::make_unique<char[]>(kPiece);
  const ssize_t count = pread(from, buffer.get(), std::min<uint64_t>(size, kPiece), from_offset);
  if (count < 0) return fail_errno(errno, "read");
  for (ssize_t done = 0; done < count;) {
    const ssize_t written = pwrite(to, buffer.get() + done, static_cast<size_t>(count - done), to_offset + done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return fail_errno(errno, "write");
    done += written;
  }
  return static_cast<uint64_t>(count);
}

}  // namespace

Result<std::pair<UniqueFd, UniqueFd>> make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return fail_errno(errno, "create a pipe");
  return std::pair(UniqueFd(ends[0]), UniqueFd(ends[1]));
}

Result<UniqueFd> make_nameless_file(const std::string& directory) {
  UniqueFd file(open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file) return file;
  const std::string path = directory + "/" + random_name(".nameless-");
  TRY_ASSIGN(file, open_file(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600));
  unlink(path.c_str());
  return file;
}

Result<int64_t> file_system_time(const std::string& directory) {
  TRY_ASSIGN(const UniqueFd file, make_nameless_file(directory));
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return fail_errno(errno, "look at a file in " + directory);
  return int64_t{status.st_mtim.tv_sec};
}

Result<void> allocate(int fd, uint64_t bytes) {
  while (bytes > 0 && fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes)) != 0) {
    if (errno == EOPNOTSUPP || errno == ENOSYS || errno == ENODEV) return {};
    if (errno != EINTR) return fail_errno(errno, "make room for " + std::to_string(bytes) + " bytes");
  }
  return {};
}

void begin_to_write_out(int fd, uint64_t from, uint64_t bytes) {
  (void)sync_file_range(fd, static_cast<off_t>(from), static_cast<off_t>(bytes), SYNC_FILE_RANGE_WRITE);
}

Result<void> copy_range(int from, uint64_t from_offset, int to, uint64_t to_offset, uint64_t size) {
  constexpr uint64_t kMost = uint64_t{1} << 30U;
  bool in_kernel = true;
  while (size > 0) {
    auto read_at = static_cast<off_t>(from_offset);
    auto write_at = static_cast<off_t>(to_offset);
    uint64_t count = 0;
    if (in_kernel) {
      const ssize_t copied = copy_file_range(from, &read_at, to, &write_at, std::min(size, kMost), 0);
      if (copied < 0 && errno == EINTR) continue;
      const bool cannot = copied < 0 && (errno == EXDEV || errno == ENOSYS || errno == EOPNOTSUPP || errno == EINVAL);
      if (copied < 0 && !cannot) return fail_errno(errno, "copy");
      // 0 is the end, or a file system that only pretends to copy.
      in_kernel = copied > 0;
      if (!in_kernel) continue;
      count = static_cast<uint64_t>(copied);
    } else {
      TRY_ASSIGN(count, copy_piece(from, read_at, to, write_at, size));
    }
    if (count == 0) return fail(ErrorKind::corrupt, "copy: the file ends too early");
    from_offset += count;
    to_offset += count;
    size -= count;
  }
  return {};
}

Result<void> share_all_blocks(int from, int to) {
  if (ioctl(to, FICLONE, from) == 0) return {};
  const bool cannot = errno == EOPNOTSUPP || errno == ENOTTY || errno == EXDEV || errno == EINVAL || errno == ENOSYS;
  Error error = Error::from_errno(errno, "share a file's blocks");
  return fail(cannot ? Error(ErrorKind::unsupported, error.message()) : std::move(error));
}

Sharing share_with_stranger(int from, int to) {
  if (ioctl(to, FICLONE, from) == 0) return Sharing::shared;
  // The first thing that the kernel compares is the file systems (EXDEV).
  return errno == EOPNOTSUPP || errno == EINVAL ? Sharing::beside : Sharing::elsewhere;
}

Result<void> write_file_atomically(const std::string& path, std::string_view bytes, mode_t mode, Sync sync) {
  const size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  TRY_ASSIGN(const UniqueFd parent, open_file(directory, O_RDONLY | O_DIRECTORY));
  const std::string temporary = random_name("." + name + ".");
  UniqueFd file(openat(parent.get(), temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return fail_errno(errno, "create " + directory + "/" + temporary);
  ScopeExit remove([&] { (void)unlinkat(parent.get(), temporary.c_str(), 0); });
  TRY_CONTEXT(path, write_all(file.get(), bytes));
  if (fchmod(file.get(), mode) != 0) return fail_errno(errno, "set mode of " + path);
  if (sync == Sync::yes && fsync(file.get()) != 0) return fail_errno(errno, "sync " + path);
  if (renameat(parent.get(), temporary.c_str(), parent.get(), name.c_str()) != 0)
    return fail_errno(errno, "rename " + temporary + " to " + path);
  remove.dismiss();
  // The file is there; a directory that cannot be synced (some network file systems) does not undo that.
  if (sync == Sync::yes) (void)fsync(parent.get());
  return {};
}

Result<void> make_directories(const std::string& path, mode_t mode) {
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (mkdir(part.c_str(), mode) != 0 && errno != EEXIST) {
      const int errnum = errno;
      // Read-only and foreign parents answer EROFS or EACCES even for what exists.
      struct stat status {};
      if (stat(part.c_str(), &status) != 0 || !S_ISDIR(status.st_mode))
        return fail_errno(errnum, "create directory " + part);
    }
    if (end == std::string::npos) break;
  }
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return fail_errno(errno, "create directory " + path);
  if (!S_ISDIR(status.st_mode)) return fail_errno(ENOTDIR, "create directory " + path);
  return {};
}

Result<void> rename_new(const std::string& from, const std::string& to) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return {};
  if (errno == EINVAL && rename(from.c_str(), to.c_str()) == 0) return {};
  const int reason = errno == ENOTEMPTY ? EEXIST : errno;
  return fail_errno(reason, "rename " + from + " to " + to);
}

Result<void> exchange_names(const std::string& one, const std::string& other) {
  if (renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE) == 0) return {};
  const std::string what = "exchange " + one + " and " + other;
  if (errno == EINVAL || errno == ENOSYS) return fail(ErrorKind::unsupported, Error::from_errno(errno, what).message());
  return fail_errno(errno, what);
}

Result<FileLock> FileLock::acquire(const std::string& path, Kind kind, std::chrono::milliseconds time) {
  TRY_ASSIGN(UniqueFd fd, open_file(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
  return acquire(std::move(fd), kind, time, path);
}

Result<FileLock> FileLock::acquire(UniqueFd fd, Kind kind, std::chrono::milliseconds time, std::string_view operand) {
  const auto deadline = std::chrono::steady_clock::now() + time;
  const int operation = (kind == Kind::shared ? LOCK_SH : LOCK_EX) | LOCK_NB;
  auto pause = std::chrono::milliseconds(1);
  while (flock(fd.get(), operation) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return fail_errno(errno, "lock " + std::string(operand));
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return fail_errno(EWOULDBLOCK, "lock " + std::string(operand));
    // flock has no time limit of its own, and an alarm would belong to the program we live in.
    std::this_thread::sleep_for(std::min(pause, left));
    pause = std::min(pause * 2, std::chrono::milliseconds(20));
  }
  return FileLock(std::move(fd));
}

}  // namespace situla
