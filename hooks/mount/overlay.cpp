#include "hooks/mount/overlay.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common/base/scope_exit.hpp"
#include "common/base/wire.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/fd_path.hpp"
#include "common/sys/file.hpp"
#include "common/sys/mount/namespaces.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/socket.hpp"

namespace situla {
namespace {

struct FileSystemName {
  int64_t type;
  const char* name;
};
/// Those that are known to be refused as upper, so that the message can name them; statfs(2).
constexpr std::array<FileSystemName, 9> kUnfitForUpper = {{{0x6969, "NFS"},
                                                           {0x0bd00bd0, "Lustre"},
                                                           {0x65735546, "FUSE"},
                                                           {0x47504653, "GPFS"},
                                                           {0x19830326, "BeeGFS"},
                                                           {0x00c36400, "CephFS"},
                                                           {0xff534d42, "CIFS"},
                                                           {0x794c7630, "overlay"},
                                                           {0x01021997, "9p"}}};

const char* unfit_name(const std::string& path) {
  const auto fd = open_file(path, O_PATH | O_DIRECTORY);
  if (!fd) return nullptr;
  const auto type = filesystem_type(fd->get());
  for (const FileSystemName& entry : kUnfitForUpper)
    if (type && *type == entry.type) return entry.name;
  return nullptr;
}

/// Best first. What a kernel does not know it refuses with EINVAL: userxattr since 5.11, volatile since 5.10. Without
/// userxattr an overlay of a user namespace works as long as no directory of the image is replaced. An index would keep
/// the upper layer of one container from being a lower layer of another.
std::vector<MountParameters> attempts(bool ephemeral) {
  std::vector<MountParameters> result;
  if (ephemeral) result.push_back({{"userxattr", ""}, {"volatile", ""}, {"index", "off"}});
  result.push_back({{"userxattr", ""}, {"index", "off"}});
  result.push_back({{"userxattr", ""}});
  result.push_back({});
  return result;
}

std::string option_names(const MountParameters& parameters) {
  std::string names;
  for (const auto& [name, value] : parameters)
    names += (names.empty() ? "" : ",") + name + (value.empty() ? "" : "=" + value);
  return names.empty() ? "no options" : names;
}

/// Of the child that tries an overlay.
constexpr WireForm kTried{"answer of an overlay's trial", 0x53540001, 4096, 1024};

/// File systems whose overlays are in everyday use; statfs(2).
constexpr std::array<int64_t, 3> kFitForUpper = {0xef53, 0x58465342, 0x9123683e};  // ext4, xfs, btrfs

/// Overlays in user namespaces came with Linux 5.11.
bool kernel_has_user_overlay() {
  struct utsname names {};
  unsigned major = 0, minor = 0;
  if (uname(&names) != 0 || std::sscanf(names.release, "%u.%u", &major, &minor) != 2) return false;
  return major > 5 || (major == 5 && minor >= 11);
}

/// An old xfs (ftype=0) does not say what kind of thing an entry is.
bool tells_types(const std::string& directory) {
  const DirStream stream(opendir(directory.c_str()));
  const dirent* entry = stream ? readdir(stream.get()) : nullptr;
  return entry != nullptr && entry->d_type == DT_DIR;  // "." or ".."
}

bool takes_attributes(const std::string& directory) {
  constexpr const char* kName = "user.overlay.situla";
  return setxattr(directory.c_str(), kName, "y", 1, 0) == 0 && removexattr(directory.c_str(), kName) == 0;
}

Error overlay_error(Error error, const OverlayLayers& layers) {
  if (const char* name = unfit_name(layers.upper); name != nullptr)
    return Error(ErrorKind::unsupported, error.message())
        .with_code(ErrorCode::mount_failed)
        .with_hint("the writable layer " + layers.upper + " lies on " + name +
                   ", which cannot hold one; put it on a local disk (ENROOT_DATA_PATH) or let the image be extracted");
  if (error.errnum() == EPERM)
    return Error(ErrorKind::unsupported, error.message())
        .with_code(ErrorCode::kernel)
        .with_hint("this kernel allows no overlay in a user namespace (Linux 5.11)");
  // The kernel takes no part of what is mounted together in the namespace above (clone_private_mount()).
  if (error.errnum() == EINVAL && std::find(layers.lower.begin(), layers.lower.end(), "/") != layers.lower.end())
    return Error(ErrorKind::unsupported, error.message())
        .with_code(ErrorCode::mount_failed)
        .with_hint("other file systems are mounted in /, so it cannot be a container's root; use a copy of it");
  if (error.errnum() == ENODEV || error.errnum() == EINVAL || error.errnum() == EOPNOTSUPP)
    return Error(ErrorKind::unsupported, error.message()).with_code(error.code()).with_hint(error.hint());
  return error;
}

Result<void> write_text(int directory, const char* name, std::string_view text, int flags) {
  TRY_ASSIGN(const UniqueFd file, open_file_at(directory, name, O_WRONLY | flags, 0600));
  return write_all(file.get(), text);
}

/// What containers do to an overlay: change a file of the image, remove one, replace a directory, then list it.
Result<void> use_overlay(int root) {
  TRY(write_text(root, "changed", "new", O_TRUNC));
  TRY(write_text(root, "added", "new", O_CREAT | O_EXCL));
  if (unlinkat(root, "removed", 0) != 0) return fail_errno(errno, "remove a file of the lower layer");
  if (unlinkat(root, "directory", AT_REMOVEDIR) != 0) return fail_errno(errno, "remove a directory of the lower layer");
  if (mkdirat(root, "directory", 0700) != 0) return fail_errno(errno, "replace a directory of the lower layer");
  if (renameat(root, "added", root, "removed") != 0) return fail_errno(errno, "rename onto a removed file");
  TRY_ASSIGN(const UniqueFd changed, open_file_at(root, "changed", O_RDONLY));
  TRY_ASSIGN(const std::string text, read_all(changed.get(), 16));
  if (text != "new")
    return fail(ErrorKind::unsupported, "change a file of the lower layer: it reads \"" + text + "\" afterwards");
  return {};
}

Result<void> make_probe_layers(const std::string& base) {
  for (const char* name : {"/lower", "/lower/directory", "/upper", "/work", "/root"})
    TRY(make_directories(base + name, 0700));
  TRY_ASSIGN(const UniqueFd lower, open_file(base + "/lower", O_RDONLY | O_DIRECTORY));
  TRY(write_text(lower.get(), "changed", "old", O_CREAT));
  return write_text(lower.get(), "removed", "old", O_CREAT);
}

/// In the child, whose mount namespace goes away with it.
Result<void> try_overlay(const std::string& base) {
  const uid_t uid = geteuid();
  const gid_t gid = getegid();
  TRY(unshare_namespaces(kUserNs | kMountNs));
  TRY(write_own_id_maps(uid, uid, gid, gid));
  TRY(set_propagation("/", Propagation::private_mount, true));
  NullLog log;
  TRY_ASSIGN(const UniqueFd target, open_file(base + "/root", O_PATH | O_DIRECTORY));
  // Ephemeral, or unmounting would sync the whole disk beneath.
  TRY(mount_overlay({{base + "/lower"}, base + "/upper", base + "/work", true}, target.get(), {}, log));
  TRY_ASSIGN(const UniqueFd root, open_file(base + "/root", O_RDONLY | O_DIRECTORY));
  return use_overlay(root.get());
}

}  // namespace

Result<void> mount_overlay(const OverlayLayers& layers, int target_fd, const MountFlags& flags, LogSink& log) {
  std::vector<UniqueFd> lower;
  for (const std::string& path : layers.lower) {
    TRY_ASSIGN(UniqueFd directory, open_file(path, O_PATH | O_DIRECTORY));
    lower.push_back(std::move(directory));
  }
  TRY_ASSIGN(const UniqueFd upper, open_file(layers.upper, O_PATH | O_DIRECTORY));
  TRY_ASSIGN(const UniqueFd work, open_file(layers.work, O_PATH | O_DIRECTORY));
  // By descriptor: the option string gives ',' and ':' a meaning and is limited to 255 bytes per option.
  std::string lower_list;
  for (const UniqueFd& fd : lower) lower_list += (lower_list.empty() ? "" : ":") + fd_path(fd.get());
  const MountParameters directories = {
      {"lowerdir", lower_list}, {"upperdir", fd_path(upper.get())}, {"workdir", fd_path(work.get())}};
  std::optional<Error> first;
  for (const MountParameters& extra : attempts(layers.ephemeral)) {
    MountParameters parameters = directories;
    parameters.insert(parameters.end(), extra.begin(), extra.end());
    auto done = mount_new_at(target_fd, "overlay", layers.source, parameters, flags, "the container's root");
    if (done) {
      log.debug("overlay mounted with " + option_names(extra));
      return {};
    }
    if (!first) first = done.error();
    // Anything else would only be repeated.
    if (done.error().errnum() != EINVAL) break;
  }
  return fail(overlay_error(std::move(*first), layers));
}

bool overlay_upper_in_use(const std::string& upper, const std::string& scratch) {
  const auto upper_fd = open_file(upper, O_PATH | O_DIRECTORY);
  const auto scratch_fd = open_file(scratch, O_PATH | O_DIRECTORY);
  if (!upper_fd || !scratch_fd) return false;
  // With an index the kernel refuses to share an upper layer (EBUSY). It looks at that first; then the working
  // directory is refused, because it lies on another file system (EINVAL), so nothing is mounted or written.
  const auto mounted = new_mount("overlay", "overlay",
                                 {{"lowerdir", fd_path(scratch_fd->get())},
                                  {"upperdir", fd_path(upper_fd->get())},
                                  {"workdir", fd_path(scratch_fd->get())},
                                  {"userxattr", ""},
                                  {"index", "on"}},
                                 {});
  return !mounted && mounted.error().errnum() == EBUSY;
}

bool overlay_upper_known_good(const std::string& directory) {
  const auto fd = open_file(directory, O_PATH | O_DIRECTORY);
  const auto type = fd ? filesystem_type(fd->get()) : Result<int64_t>(0);
  return type && std::find(kFitForUpper.begin(), kFitForUpper.end(), *type) != kFitForUpper.end() &&
         kernel_has_user_overlay() && tells_types(directory) && takes_attributes(directory);
}

Result<void> overlay_upper_works(const std::string& directory) {
  const std::string base = directory + "/" + random_name(".situla-overlay-");
  TRY(make_directories(base, 0700));
  const ScopeExit remove([&base] { (void)remove_tree(base); });
  TRY(make_probe_layers(base));
  TRY_ASSIGN(auto sockets, socket_pair());
  TRY_ASSIGN(Child child, fork_child());
  if (!child) {
    // It has its parent's locks, which end with it.
    (void)die_with_parent();
    const auto done = try_overlay(base);
    (void)send_packet(sockets.second.get(), done ? "ok" : to_wire(SentError::of(done.error()), kTried));
    _exit(0);
  }
  sockets.second.reset();
  TRY_ASSIGN(const std::optional<Packet> answer, receive_packet(sockets.first.get(), kTried.most_bytes));
  TRY(child.wait());
  if (!answer)
    return fail(Error(ErrorKind::failure, "try an overlay on " + directory + ": the helper process died")
                    .with_code(ErrorCode::helper));
  if (answer->bytes == "ok") return {};
  TRY_ASSIGN(SentError refused, from_wire<SentError>(answer->bytes, kTried));
  refused.kind = ErrorKind::unsupported;
  return fail(refused.error().with_context("try an overlay on " + directory));
}

}  // namespace situla
