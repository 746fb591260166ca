#include "common/sys/private_directory.hpp"

#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/fd_path.hpp"
#include "common/sys/file.hpp"
#include "common/sys/identity.hpp"
#include "common/sys/kernel.hpp"
#include "common/sys/users.hpp"

namespace situla {
namespace {

constexpr int kMostLinks = 8;
constexpr uid_t kNobody = 65534;

enum class Missing { error, make };

std::string owner_name(uid_t uid) {
  const std::string number = "uid " + std::to_string(uid);
  const auto user = find_user(uid);
  return user && *user ? printable((*user)->name) + " (" + number + ")" : number;
}

std::string octal(mode_t mode) {
  std::array<char, 8> text{};
  (void)std::snprintf(text.data(), text.size(), "%04o", mode & 07777U);
  return text.data();
}

std::string shown(const std::string& path, std::string_view setting) {
  return (setting.empty() ? "" : std::string(setting) + ": ") + printable(path);
}

std::string choose_another(std::string_view setting) {
  return setting.empty() ? "choose another directory" : "choose another directory: " + std::string(setting) + "=PATH";
}

/// Who can choose another directory reads about settings, and others about what belongs to whom.
ErrorCode code_of(std::string_view setting) {
  return setting.empty() ? ErrorCode::installation : ErrorCode::enroot_config;
}

/// Files of users that our user namespace does not have belong to nobody, and so may we.
bool is_ours(uid_t owner) {
  return owner == geteuid() && (owner != kNobody || is_mapped_uid(owner));
}

/// Where the last component of a path is looked up.
struct Place {
  UniqueFd parent;  ///< O_PATH; empty: the working directory
  std::string name;
  [[nodiscard]] int fd() const { return parent ? parent.get() : AT_FDCWD; }
};

std::string without_last_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

Result<Place> place_of(const std::string& asked, int base, Missing missing) {
  const std::string path = without_last_slashes(asked);
  const size_t slash = path.rfind('/');
  Place place;
  if (slash == std::string::npos || path == "/") {
    if (base != AT_FDCWD) {
      TRY_ASSIGN(place.parent, duplicate_fd(base, path));
    }
    place.name = path;
    return place;
  }
  const std::string above = slash == 0 ? "/" : path.substr(0, slash);
  if (missing == Missing::make && base == AT_FDCWD) TRY(make_directories(above, 0700));
  TRY_ASSIGN(place.parent, open_file_at(base, above, O_PATH | O_DIRECTORY));
  place.name = path.substr(slash + 1);
  return place;
}

/// In a user namespace root's links are nobody's, as are those of all others whom it lacks. Where the directory is
/// ours, and nobody else may write in it, who else than we has made names there is root.
bool can_only_be_roots(const Place& place, uid_t owner) {
  if (owner == 0) return true;
  struct stat above {};
  return owner == kNobody && !is_mapped_uid(kNobody) &&
         fstatat(place.fd(), place.parent ? "" : ".", &above, AT_EMPTY_PATH) == 0 && is_ours(above.st_uid) &&
         (above.st_mode & 0022U) == 0;
}

Result<std::string> trusted_link(int link, const Place& place, const struct stat& status, const std::string& path,
                                 std::string_view setting) {
  if (!is_ours(status.st_uid) && !can_only_be_roots(place, status.st_uid))
    return fail(Error(ErrorKind::denied,
                      shown(path, setting) + " is a symbolic link that belongs to " + owner_name(status.st_uid))
                    .with_code(code_of(setting))
                    .with_hint(choose_another(setting)));
  std::string target(PATH_MAX, '\0');
  const ssize_t size = readlinkat(link, "", target.data(), target.size());
  if (size < 0) return fail_errno(errno, "read the link " + path);
  target.resize(static_cast<size_t>(size));
  return target;
}

/// The private directory that a name in a place is, over links that may be followed.
Result<UniqueFd> open_private(Place place, const std::string& path, std::string_view setting, Missing missing) {
  for (int links = 0; links <= kMostLinks; ++links) {
    const char* name = place.name.c_str();
    if (missing == Missing::make && mkdirat(place.fd(), name, 0700) != 0 && errno != EEXIST) {
      const int reason = errno;
      // Read-only and foreign parents answer EROFS or EACCES even for what exists.
      if (faccessat(place.fd(), name, F_OK, AT_SYMLINK_NOFOLLOW) != 0)
        return fail(Error::from_errno(reason, "create directory " + shown(path, setting)));
    }
    UniqueFd found(openat(place.fd(), name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (!found) return fail_errno(errno, "open " + shown(path, setting));
    struct stat status {};
    if (fstat(found.get(), &status) != 0) return fail_errno(errno, "inspect " + path);
    if (!S_ISLNK(status.st_mode)) {
      UniqueFd directory(openat(found.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      const int reason = errno;
      // Why it cannot be opened is most often that it is somebody else's.
      if (S_ISDIR(status.st_mode)) TRY(check_private(found.get(), path, setting));
      if (directory) return directory;
      return fail_errno(reason, "open " + shown(path, setting));
    }
    TRY_ASSIGN(const std::string target, trusted_link(found.get(), place, status, path, setting));
    TRY_ASSIGN(place, place_of(target, place.fd(), missing));
  }
  return fail_errno(ELOOP, "open " + shown(path, setting));
}

Result<UniqueFd> open_private(const std::string& path, std::string_view setting, Missing missing) {
  auto place = place_of(path, AT_FDCWD, missing);
  auto opened = place ? open_private(std::move(*place), path, setting, missing) : fail(std::move(place).error());
  if (!opened && !setting.empty()) opened.error().with_code(code_of(setting));
  return opened;
}

}  // namespace

Result<void> check_private(int directory_fd, const std::string& path, std::string_view setting) {
  struct stat status {};
  if (fstat(directory_fd, &status) != 0) return fail_errno(errno, "inspect " + path);
  if (!is_ours(status.st_uid)) {
    const std::string as_owner = geteuid() == 0 && status.st_uid != kNobody
                                     ? ", or run the command as " + owner_name(status.st_uid)
                                     : std::string();
    return fail(Error(ErrorKind::denied, shown(path, setting) + " belongs to " + owner_name(status.st_uid) +
                                             ", not to " + owner_name(geteuid()))
                    .with_code(code_of(setting))
                    .with_hint(choose_another(setting) + as_owner));
  }
  if ((status.st_mode & 0022U) != 0)
    return fail(Error(ErrorKind::denied,
                      shown(path, setting) + " can be written by other users (mode " + octal(status.st_mode) + ")")
                    .with_code(code_of(setting))
                    .with_hint("look at what is in it, then: chmod go-w " + shell_quote(path)));
  return {};
}

Result<PrivateDirectory> PrivateDirectory::open(const std::string& path, std::string_view setting) {
  TRY_ASSIGN(UniqueFd fd, open_private(path, setting, Missing::error));
  return PrivateDirectory(std::move(fd), without_last_slashes(path));
}

Result<PrivateDirectory> PrivateDirectory::open_or_make(const std::string& path, std::string_view setting) {
  TRY_ASSIGN(UniqueFd fd, open_private(path, setting, Missing::make));
  return PrivateDirectory(std::move(fd), without_last_slashes(path));
}

Result<PrivateDirectory> PrivateDirectory::below(const std::string& name) const {
  Place place;
  TRY_ASSIGN(place.parent, duplicate_fd(fd(), path_));
  place.name = name;
  TRY_ASSIGN(UniqueFd found, open_private(std::move(place), path(name), {}, Missing::make));
  return PrivateDirectory(std::move(found), path(name));
}

Result<PrivateDirectory> PrivateDirectory::own_within(const std::string& path, std::string_view prefix,
                                                      std::string_view setting) {
  TRY(make_directories(path, 0700));
  TRY_ASSIGN(UniqueFd above, open_file(path, O_PATH | O_DIRECTORY));
  if (check_private(above.get(), path, setting)) {
    TRY_ASSIGN(UniqueFd fd, open_file_at(above.get(), ".", O_RDONLY | O_DIRECTORY));
    return PrivateDirectory(std::move(fd), without_last_slashes(path));
  }
  std::string name = std::string(prefix) + "-" + std::to_string(geteuid());
  std::string own = path + "/" + name;
  TRY_ASSIGN(UniqueFd fd, open_private({std::move(above), std::move(name)}, own, setting, Missing::make));
  return PrivateDirectory(std::move(fd), std::move(own));
}

std::string PrivateDirectory::held() const {
  return fd_path(fd());
}

}  // namespace situla
