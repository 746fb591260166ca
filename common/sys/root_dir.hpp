// How is a path inside a root file system opened without ever leaving it? Beneath a directory fd, by openat2(2).
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"

namespace situla {

/// Makes every RootDir in this process use the component walk instead of openat2(2) (kernels < 5.6; tests force it).
enum class ResolveMode { openat2, walk };

/// Asked before something is made in a directory beneath a root: an error forbids it.
using CreationCheck = std::function<Result<void>(int directory_fd)>;

/// A directory that is "/" for everything resolved through it: absolute and ".." symlinks stay inside
/// (RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS, DESIGN.md 5). Fallback: O_PATH|O_NOFOLLOW component walk, at most 40
/// links.
class RootDir {
 public:
  /// Opens `path` (resolved normally, the caller trusts it) as a root.
  static Result<RootDir> open(const std::string& path);
  /// Takes over an O_PATH or O_DIRECTORY descriptor. mode is chosen by probing unless given.
  static RootDir from_fd(UniqueFd fd);
  static RootDir from_fd(UniqueFd fd, ResolveMode mode);

  /// open(2) beneath the root; flags as for open, O_CLOEXEC is added. The last component is followed inside the root
  /// unless O_NOFOLLOW. O_CREAT needs an existing parent. Magic links: ELOOP/EXDEV errors.
  [[nodiscard]] Result<UniqueFd> open_at(std::string_view path, int flags, mode_t mode = 0) const;
  /// An O_PATH descriptor of an existing thing.
  [[nodiscard]] Result<UniqueFd> resolve(std::string_view path) const;
  [[nodiscard]] bool exists(std::string_view path) const;
  /// Creates missing directories (mode, e.g. 0755), following links inside the root, and returns the last one as
  /// O_PATH.
  [[nodiscard]] Result<UniqueFd> make_directories(std::string_view path, mode_t mode) const;
  /// Creates an empty regular file with its parents if nothing is there; returns O_PATH of what is there.
  [[nodiscard]] Result<UniqueFd> make_file(std::string_view path, mode_t mode) const;
  /// Whole content of a regular file, at most limit bytes (ErrorKind::corrupt beyond).
  [[nodiscard]] Result<std::string> read_file(std::string_view path, size_t limit = size_t{1} << 20U) const;
  /// Replaces or creates a regular file by a temporary name and rename in its directory.
  [[nodiscard]] Result<void> write_file(std::string_view path, std::string_view content, mode_t mode) const;

  /// The first error since it was opened of which nobody can tell whether there is such a file (Error::inconclusive()):
  /// no descriptors, no memory, a disk that fails. For whoever takes what cannot be opened for missing, and asks once
  /// at the end whether that was right.
  [[nodiscard]] Result<void> all_answered() const;

  /// The same root, in which make_directories(), make_file() and write_file() ask first.
  [[nodiscard]] Result<RootDir> guarded(CreationCheck check) const;
  /// For those who make something in an open directory of the root by themselves.
  [[nodiscard]] Result<void> may_create_in(int directory_fd) const {
    return check_ ? check_(directory_fd) : Result<void>();
  }

  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  struct Unanswered {
    std::mutex mutex;
    std::optional<Error> first;
  };

  RootDir(UniqueFd fd, ResolveMode mode)
      : fd_(std::move(fd)), mode_(mode), unanswered_(std::make_shared<Unanswered>()) {}
  void remember(const Error& error) const;

  UniqueFd fd_;
  ResolveMode mode_ = ResolveMode::openat2;
  CreationCheck check_;
  std::shared_ptr<Unanswered> unanswered_;  ///< of guarded copies, too
};

}  // namespace situla
