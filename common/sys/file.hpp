// How are files of the host read, written whole and locked?
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"

namespace situla {

/// open(2) with O_CLOEXEC; the error names the path.
Result<UniqueFd> open_file(const std::string& path, int flags, mode_t mode = 0);
Result<UniqueFd> open_file_at(int directory_fd, const std::string& path, int flags, mode_t mode = 0);
/// A squashfs file that a user named, for reading, as the calling user. ErrorKind::usage for what is no regular file.
Result<UniqueFd> open_image_file(const std::string& path);
/// The path of a squashfs file in the same directory that has almost that name, or that name and ".sqsh" behind it;
/// empty when there is none. For "did you mean".
std::string similar_image(const std::string& path);
/// With O_CLOEXEC; `what` is for the error.
Result<UniqueFd> duplicate_fd(int fd, std::string_view what);
/// The end for reading and the one for writing, close-on-exec.
Result<std::pair<UniqueFd, UniqueFd>> make_pipe();
Result<std::string> read_all(int fd, size_t limit);
/// Reads a file of at most limit bytes (ErrorKind::corrupt beyond).
Result<std::string> read_file(const std::string& path, size_t limit = size_t{16} << 20U);
Result<void> write_all(int fd, std::string_view bytes);
/// To read and write, in the directory, mode 0600; gone when it is closed. It has a name only for an instant, and only
/// where the file system has no O_TMPFILE (NFS, overlays before Linux 6.1).
Result<UniqueFd> make_nameless_file(const std::string& directory);
/// What the clock of its file system says, which nodes that share it have in common: seconds since the epoch. A
/// nameless file is made in the directory for that.
Result<int64_t> file_system_time(const std::string& directory);
/// Copies size bytes between files at the given offsets, inside the kernel where it can (copy_file_range(2)), and
/// sharing them where the file system can. ErrorKind::corrupt when `from` ends before.
Result<void> copy_range(int from, uint64_t from_offset, int to, uint64_t to_offset, uint64_t size);
/// Room on the disk for so many bytes from its beginning on, now rather than when they come. The size stays. Nothing
/// where the file system cannot do that.
Result<void> allocate(int fd, uint64_t bytes);
/// The disk may begin with that part of a file, which is synced later (sync_file_range(2)).
void begin_to_write_out(int fd, uint64_t from, uint64_t bytes);
/// The file `to` becomes the file `from`, with which it has all blocks in common until one of them is changed
/// (FICLONE). ErrorKind::unsupported: their file system cannot do that, or they are in two.
Result<void> share_all_blocks(int from, int to);
/// The same, for a `to` of somebody who is not trusted: a file system that is not that of `from` is not asked anything,
/// and so cannot keep anybody waiting (FUSE).
enum class Sharing {
  shared,    ///< it is done
  beside,    ///< they are in one file system, which cannot do that
  elsewhere  ///< they are not, as far as this kernel can tell
};
Sharing share_with_stranger(int from, int to);
/// Appears under its final name only when whole and fsynced (temporary name in the same directory, rename).
enum class Sync { yes, no };  ///< no: for what can be made again, and is checked when it is read
Result<void> write_file_atomically(const std::string& path, std::string_view bytes, mode_t mode, Sync sync = Sync::yes);
Result<void> make_directories(const std::string& path, mode_t mode);
/// Where this process is; "/" where that cannot be said.
std::string current_directory();
/// Where the program of this process lies.
std::string program_directory();
/// A file that belongs to this program ("situla-printenv"): beside it (build tree), in ../libexec/situla, or where it
/// was configured to be installed. ErrorKind::not_found with a hint.
Result<std::string> find_installed(const std::string& name);
/// rename(2) that replaces nothing (ErrorKind::exists); an empty directory, on file systems that cannot promise that.
Result<void> rename_new(const std::string& from, const std::string& to);
/// Both exist before and after, and there is no moment between (renameat2(2), RENAME_EXCHANGE). ErrorKind::unsupported
/// where the file system cannot.
Result<void> exchange_names(const std::string& one, const std::string& other);
/// prefix + 16 random hexadecimal digits, for temporary names (open them with O_EXCL).
std::string random_name(std::string_view prefix);
/// Whether random_name(prefix) can have made it; not of a longer prefix that begins alike.
bool is_random_name(std::string_view name, std::string_view prefix);
/// Removes a tree without following links or crossing mounts; makes directories accessible first. Missing is success.
Result<void> remove_tree(const std::string& path);
/// The same for one name in an open directory.
Result<void> remove_tree_at(int directory_fd, const std::string& name);

/// flock(2) on a file; released with the object, also when the process dies.
class FileLock {
 public:
  enum class Kind { shared, exclusive };
  /// Waits at most `time`; ErrorKind::failure when somebody else holds it that long (the caller adds who and why).
  static Result<FileLock> acquire(const std::string& path, Kind kind, std::chrono::milliseconds time);
  static Result<FileLock> acquire(UniqueFd fd, Kind kind, std::chrono::milliseconds time, std::string_view operand);
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  explicit FileLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace situla
