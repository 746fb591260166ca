#include "hooks/inject/ldcache/place_file.hpp"

#include <string>

#include <fcntl.h>
#include <sys/stat.h>

#include "common/base/scope_exit.hpp"
#include "common/sys/fd_path.hpp"
#include "common/sys/file.hpp"
#include "common/sys/mount/mount_api.hpp"

namespace situla {
namespace {

constexpr mode_t kFileMode = 0644;

/// A directory that images have, on which a mount of a moment covers nothing that is needed meanwhile.
Result<UniqueFd> open_workplace(const RootDir& root, std::string& path) {
  for (const char* name : {"/tmp", "/dev", "/run", "/usr", "/lib"}) {
    auto opened = root.open_at(name, O_PATH | O_DIRECTORY);
    if (!opened) continue;
    path = name;
    return opened;
  }
  return fail(ErrorKind::not_found, "find a directory in the root file system to mount on: neither /tmp nor /usr");
}

/// A file that only exists in memory is mounted over the one at path. It lies on a file system of its own, which is
/// mounted somewhere for the moment: before Linux 6.15 no part of a mount can be taken that is mounted nowhere.
Result<void> mount_over(const RootDir& root, const std::string& path, std::string_view content) {
  TRY_ASSIGN(const UniqueFd target, root.resolve(path));
  struct stat status {};
  if (fstat(target.get(), &status) != 0) return fail_errno(errno, "inspect " + path);
  if (!S_ISREG(status.st_mode)) return fail(ErrorKind::corrupt, path + " in the root file system is no regular file");
  std::string directory;
  TRY_ASSIGN(const UniqueFd below, open_workplace(root, directory));
  TRY(mount_new_at(below.get(), "tmpfs", "situla", {{"mode", "0755"}}, {}, directory));
  TRY_ASSIGN(const UniqueFd top, root.open_at(directory, O_PATH | O_DIRECTORY));
  const ScopeExit unmount_it([&] {
    // The "." makes it a path behind the magic link, not the link.
    (void)unmount(fd_path(top.get()) + "/.", true);
  });
  constexpr const char* kName = "file";
  TRY_ASSIGN(const UniqueFd file, open_file_at(top.get(), kName, O_WRONLY | O_CREAT | O_EXCL, kFileMode));
  TRY(write_all(file.get(), content));
  if (fchmod(file.get(), kFileMode) != 0) return fail_errno(errno, "make " + path + " readable");
  TRY_ASSIGN(const UniqueFd source, open_file_at(top.get(), kName, O_PATH));
  return bind_at(target.get(), source.get(), false, {.no_suid = true, .no_dev = true}, path);
}

}  // namespace

Result<void> place_file(const RootDir& root, std::string_view path, std::string_view content, LogSink& log) {
  const std::string name(path);
  auto made = root.make_directories(name.substr(0, name.rfind('/')), 0755);
  auto written = made ? root.write_file(path, content, kFileMode) : fail(std::move(made).error());
  if (written) return written;
  const int reason = written.error().errnum();
  if (reason == ENOSPC || reason == EDQUOT) return written;
  // EISDIR: a directory is in the way. EROFS, EACCES, EPERM: the root is not ours to change.
  auto mounted = reason == EISDIR ? fail(std::move(written).error()) : mount_over(root, name, content);
  if (!mounted) log.warning("programs may not find libraries of the host: " + mounted.error().message());
  return {};
}

}  // namespace situla
