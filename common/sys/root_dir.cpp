#include "common/sys/root_dir.hpp"

#include <atomic>
#include <climits>
#include <optional>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/scope_exit.hpp"
#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/kernel.hpp"
#include "common/sys/root_walk.hpp"

namespace situla {
namespace {

constexpr int kMaxRaces = 128;
constexpr int kMaxLinks = 40;

std::atomic<int> probed_mode{0};  // 0 unknown, 1 openat2, 2 walk

ResolveMode default_mode() {
  int found = probed_mode.load();
  if (found == 0) {
    kernel::OpenHow how{};
    how.flags = O_PATH | O_CLOEXEC;
    how.resolve = kernel::kResolveInRoot;
    const UniqueFd fd(kernel::openat2(AT_FDCWD, ".", how));
    // EPERM: a seccomp filter of an outer container that does not know the call.
    found = !fd && (errno == ENOSYS || errno == EPERM) ? 2 : 1;
    probed_mode.store(found);
  }
  return found == 1 ? ResolveMode::openat2 : ResolveMode::walk;
}

Result<UniqueFd> kernel_open(int root_fd, const std::string& path, int flags, mode_t mode) {
  kernel::OpenHow how{};
  how.flags = static_cast<uint64_t>(static_cast<unsigned>(flags | O_CLOEXEC));
  how.mode = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? mode : 0;
  how.resolve = kernel::kResolveInRoot | kernel::kResolveNoMagicLinks;
  int errnum = 0;
  for (int attempt = 0; attempt < kMaxRaces; ++attempt) {
    UniqueFd fd(kernel::openat2(root_fd, path.c_str(), how));
    if (fd) return fd;
    errnum = errno;
    // EAGAIN: a rename elsewhere made ".." uncertain; only trying again tells.
    if (errnum != EAGAIN && errnum != EINTR) break;
  }
  // When a rename or a mount elsewhere makes the kernel begin again, it counts the links on the way twice.
  if (errnum == ELOOP) return walk_open(root_fd, path, flags, mode);
  return fail_errno(errnum, ((flags & O_CREAT) != 0 ? "create " : "open ") + path + " in the root file system");
}

/// "/a//b/" -> {"/a", "b"}; a name of "" means the root itself.
std::pair<std::string, std::string> split_name(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return {".", std::string(path)};
  return {std::string(path.substr(0, slash + 1)), std::string(path.substr(slash + 1))};
}

/// Where a link at parent/name points, as a path from the root. nullopt when it is no link.
std::optional<std::string> link_target(int parent_fd, const std::string& parent, const std::string& name) {
  std::string text(PATH_MAX, '\0');
  const ssize_t size = readlinkat(parent_fd, name.c_str(), text.data(), text.size());
  if (size <= 0) return std::nullopt;
  text.resize(static_cast<size_t>(size));
  return text.starts_with('/') ? text : parent + "/" + text;
}

tl::unexpected<Error> too_many_links(std::string_view path) {
  return fail_errno(ELOOP, "create " + std::string(path) + " in the root file system");
}

/// make_directories and make_file with a budget of dangling links, whose targets are created in their place.
class Maker {
 public:
  Maker(const RootDir& root, mode_t directory_mode) : root_(root), directory_mode_(directory_mode) {}

  Result<UniqueFd> directories(std::string_view path) {
    std::string done = "/";
    // Mostly all of it is there already.
    auto whole = root_.open_at(done + std::string(path), O_PATH | O_DIRECTORY);
    if (whole || whole.error().errnum() != ENOENT) return whole;
    TRY_ASSIGN(UniqueFd here, root_.open_at("/", O_PATH | O_DIRECTORY));
    for (const std::string_view part : split_nonempty(path, '/')) {
      const std::string name(part);
      const std::string next = done + (done == "/" ? "" : "/") + name;
      auto found = root_.open_at(next, O_PATH | O_DIRECTORY);
      if (!found && found.error().errnum() == ENOENT) found = directory(here.get(), done, name);
      if (!found) return found;
      here = std::move(*found);
      done = next;
    }
    return here;
  }

  Result<UniqueFd> file(std::string_view path, mode_t mode) {
    const auto [directory, name] = split_name(path);
    if (name.empty() || name == "." || name == ".." || path.ends_with('/'))
      return fail_errno(EISDIR, "create file " + std::string(path) + " in the root file system");
    auto found = root_.resolve(path);
    if (found || found.error().errnum() != ENOENT) return found;
    TRY_ASSIGN(const UniqueFd parent, directories(directory));
    TRY_CONTEXT("create file " + std::string(path), root_.may_create_in(parent.get()));
    const UniqueFd created(
        openat(parent.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
    if (!created) {
      const int errnum = errno;
      if (errnum != EEXIST) return fail_errno(errnum, "create file " + std::string(path) + " in the root file system");
      if (const auto target = link_target(parent.get(), directory, name)) {
        if (++links_ > kMaxLinks) return too_many_links(path);
        return file(*target, mode);
      }
    }
    return root_.resolve(path);
  }

 private:
  Result<UniqueFd> directory(int parent_fd, const std::string& parent, const std::string& name) {
    TRY_CONTEXT("create directory " + parent + "/" + name, root_.may_create_in(parent_fd));
    if (mkdirat(parent_fd, name.c_str(), directory_mode_) != 0) {
      const int errnum = errno;
      if (errnum != EEXIST)
        return fail_errno(errnum, "create directory " + parent + "/" + name + " in the root file system");
      if (const auto target = link_target(parent_fd, parent, name)) {
        if (++links_ > kMaxLinks) return too_many_links(parent + "/" + name);
        return directories(*target);
      }
    }
    return root_.open_at(parent + "/" + name, O_PATH | O_DIRECTORY);
  }

  const RootDir& root_;
  mode_t directory_mode_;
  int links_ = 0;
};

}  // namespace

Result<RootDir> RootDir::open(const std::string& path) {
  TRY_ASSIGN(UniqueFd fd, open_file(path, O_PATH | O_DIRECTORY));
  return from_fd(std::move(fd));
}

RootDir RootDir::from_fd(UniqueFd fd) {
  return from_fd(std::move(fd), default_mode());
}

RootDir RootDir::from_fd(UniqueFd fd, ResolveMode mode) {
  return RootDir(std::move(fd), mode);
}

Result<RootDir> RootDir::guarded(CreationCheck check) const {
  TRY_ASSIGN(UniqueFd copy, duplicate_fd(fd_.get(), "the root file system"));
  RootDir root(std::move(copy), mode_);
  root.check_ = std::move(check);
  root.unanswered_ = unanswered_;
  return root;
}

Result<UniqueFd> RootDir::open_at(std::string_view path, int flags, mode_t mode) const {
  if (path.find('\0') != std::string_view::npos || path.size() >= PATH_MAX)
    return fail_errno(path.size() >= PATH_MAX ? ENAMETOOLONG : EINVAL, "open " + printable(path.substr(0, 64)));
  const std::string_view used = path.empty() ? std::string_view(".") : path;
  auto opened = mode_ == ResolveMode::walk ? walk_open(fd_.get(), used, flags, mode)
                                           : kernel_open(fd_.get(), std::string(used), flags, mode);
  if (!opened) remember(opened.error());
  return opened;
}

void RootDir::remember(const Error& error) const {
  if (!error.inconclusive()) return;
  const std::scoped_lock lock(unanswered_->mutex);
  if (!unanswered_->first) unanswered_->first = error;
}

Result<void> RootDir::all_answered() const {
  const std::scoped_lock lock(unanswered_->mutex);
  return unanswered_->first ? fail(*unanswered_->first) : Result<void>();
}

Result<UniqueFd> RootDir::resolve(std::string_view path) const {
  return open_at(path, O_PATH);
}

bool RootDir::exists(std::string_view path) const {
  return resolve(path).has_value();
}

Result<UniqueFd> RootDir::make_directories(std::string_view path, mode_t mode) const {
  return Maker(*this, mode).directories(path);
}

Result<UniqueFd> RootDir::make_file(std::string_view path, mode_t mode) const {
  constexpr mode_t kParentMode = 0755;
  return Maker(*this, kParentMode).file(path, mode);
}

Result<std::string> RootDir::read_file(std::string_view path, size_t limit) const {
  // Non-blocking: a fifo planted in an image must not stop the reader.
  TRY_ASSIGN(const UniqueFd fd, open_at(path, O_RDONLY | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  if (fstat(fd.get(), &status) != 0) {
    Error error = Error::from_errno(errno, "inspect " + std::string(path));
    remember(error);
    return fail(std::move(error));
  }
  if (!S_ISREG(status.st_mode)) return fail(ErrorKind::corrupt, "read " + std::string(path) + ": not a regular file");
  auto bytes = read_all(fd.get(), limit);
  if (bytes) return bytes;
  Error error = std::move(bytes).error().with_context(path);
  remember(error);
  return fail(std::move(error));
}

Result<void> RootDir::write_file(std::string_view path, std::string_view content, mode_t mode) const {
  const auto [directory, name] = split_name(path);
  const std::string operand = "write " + std::string(path) + " in the root file system";
  if (name.empty() || name == "." || name == "..") return fail_errno(EISDIR, operand);
  TRY_ASSIGN(const UniqueFd parent, open_at(directory, O_PATH | O_DIRECTORY));
  TRY_CONTEXT(operand, may_create_in(parent.get()));
  const std::string temporary = random_name(".situla-");
  const UniqueFd file(
      openat(parent.get(), temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return fail_errno(errno, operand);
  ScopeExit remove([&] { (void)unlinkat(parent.get(), temporary.c_str(), 0); });
  TRY_CONTEXT(operand, write_all(file.get(), content));
  if (fchmod(file.get(), mode) != 0) return fail_errno(errno, operand);
  if (renameat(parent.get(), temporary.c_str(), parent.get(), name.c_str()) != 0) return fail_errno(errno, operand);
  remove.dismiss();
  return {};
}

}  // namespace situla
