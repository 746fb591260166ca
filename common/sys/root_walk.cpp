#include "common/sys/root_walk.hpp"

#include <climits>
#include <deque>
#include <string>
#include <vector>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/base/text.hpp"

namespace situla {
namespace {

constexpr int kMaxLinksInWalk = 40;  // as the kernel
constexpr int kMaxRacesInWalk = 64;

Result<std::string> read_link(int directory, const char* name) {
  std::string text(PATH_MAX, '\0');
  const ssize_t size = readlinkat(directory, name, text.data(), text.size());
  if (size < 0) return fail_errno(errno, "read link");
  text.resize(static_cast<size_t>(size));
  return text;
}

/// /proc/<pid>/fd/3, exe, cwd, ns/...: following them would leave the root; their text begins like a host path or is
/// "pipe:[1]". The ordinary links of procfs (self, mounts, net) are relative.
bool is_magic_link(int directory, std::string_view text) {
  struct statfs status {};
  if (fstatfs(directory, &status) != 0 || status.f_type != PROC_SUPER_MAGIC) return false;
  return text.starts_with('/') || text.starts_with('(') || text.find(':') != std::string_view::npos;
}

/// Every directory on the way is held open, so ".." goes where we came from, however directories are renamed meanwhile;
/// it can never go above the root.
class Walk {
 public:
  Walk(int root_fd, std::string_view path, int flags, mode_t mode)
      : root_(root_fd), path_(path), flags_(flags | O_CLOEXEC), mode_(mode) {}

  Result<UniqueFd> run() {
    push(path_);
    must_be_directory_ = path_.ends_with('/');
    for (int races = 0;;) {
      while (todo_.size() > 1) TRY(step());
      auto fd = last();
      if (fd) return fd;
      // Replaced between looking and opening: look again.
      if (!again_ || ++races > kMaxRacesInWalk) return fd;
    }
  }

 private:
  [[nodiscard]] int here() const { return stack_.empty() ? root_ : stack_.back().get(); }
  [[nodiscard]] tl::unexpected<Error> error(int errnum) const {
    return fail_errno(
        errnum, ((flags_ & O_CREAT) != 0 ? "create " : "open ") + std::string(path_) + " in the root file system");
  }

  /// Puts the components of a path in front of what is left to do; an absolute path starts at the root again.
  void push(std::string_view path) {
    if (path.starts_with('/')) stack_.clear();
    const auto parts = split_nonempty(path, '/');
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) todo_.emplace_front(*part);
  }

  Result<void> follow(const std::string& text) {
    if (++links_ > kMaxLinksInWalk || is_magic_link(here(), text)) return error(ELOOP);
    if (text.size() + path_.size() > PATH_MAX * 2U) return error(ENAMETOOLONG);
    if (text.ends_with('/') && todo_.empty()) must_be_directory_ = true;
    push(text);
    return {};
  }

  Result<void> step() {
    const std::string name = std::move(todo_.front());
    todo_.pop_front();
    if (name == ".") return {};
    if (name == "..") {
      if (!stack_.empty()) stack_.pop_back();
      return {};
    }
    // Only what is said to be a directory is mounted by an automounter.
    if (UniqueFd next(openat(here(), name.c_str(), O_PATH | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC)); next) {
      stack_.push_back(std::move(next));
      return {};
    }
    if (errno != ENOTDIR) return error(errno);
    auto text = read_link(here(), name.c_str());
    if (!text) return error(text.error().errnum() == EINVAL ? ENOTDIR : text.error().errnum());
    return follow(*text);
  }

  /// The last component, or the root itself when nothing is left.
  Result<UniqueFd> last() {
    again_ = false;
    const bool create = (flags_ & O_CREAT) != 0;
    if (todo_.empty()) return open_directory_here();
    if (create && must_be_directory_) return error(EISDIR);
    const std::string name = todo_.front();
    if (name == "." || name == "..") {
      TRY(step());
      return open_directory_here();
    }
    const bool follow_link =
        must_be_directory_ || ((flags_ & O_NOFOLLOW) == 0 && (flags_ & (O_CREAT | O_EXCL)) != (O_CREAT | O_EXCL));
    if (follow_link) {
      auto text = read_link(here(), name.c_str());
      if (text) {
        todo_.pop_front();
        TRY(follow(*text));
        again_ = true;
        return error(ELOOP);
      }
    }
    const int directory = must_be_directory_ ? O_DIRECTORY : 0;
    UniqueFd fd(openat(here(), name.c_str(), flags_ | O_NOFOLLOW | directory, mode_));
    if (!fd) {
      const int errnum = errno;
      again_ = follow_link && (errnum == ELOOP || errnum == ENOTDIR) && is_link(name);
      return error(errnum);
    }
    // O_PATH opens the link itself where O_RDONLY answers ELOOP.
    if (follow_link && (flags_ & O_PATH) != 0) {
      struct stat status {};
      if (fstat(fd.get(), &status) != 0) return error(errno);
      if (S_ISLNK(status.st_mode)) {
        again_ = true;
        return error(ELOOP);
      }
    }
    return fd;
  }

  [[nodiscard]] bool is_link(const std::string& name) const {
    struct stat status {};
    return fstatat(here(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(status.st_mode);
  }

  Result<UniqueFd> open_directory_here() {
    if ((flags_ & O_CREAT) != 0) return error((flags_ & O_EXCL) != 0 ? EEXIST : EISDIR);
    UniqueFd fd(openat(here(), ".", flags_));
    if (!fd) return error(errno);
    return fd;
  }

  int root_;
  std::string_view path_;
  int flags_;
  mode_t mode_;
  std::deque<std::string> todo_;
  std::vector<UniqueFd> stack_;
  int links_ = 0;
  bool must_be_directory_ = false;
  bool again_ = false;
};

}  // namespace

Result<UniqueFd> walk_open(int root_fd, std::string_view path, int flags, mode_t mode) {
  return Walk(root_fd, path, flags, mode).run();
}

}  // namespace situla
