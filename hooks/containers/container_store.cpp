#include "hooks/containers/container_store.hpp"

#include <climits>
#include <cstdlib>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/fd_path.hpp"
#include "common/sys/file.hpp"
#include "common/sys/identity.hpp"
#include "common/sys/mount/mount_api.hpp"
#include "common/sys/sync.hpp"
#include "hooks/containers/container_identity.hpp"
#include "hooks/containers/extract_tree.hpp"
#include "hooks/containers/own_ids.hpp"
#include "hooks/containers/request.hpp"
#include "hooks/containers/user_range.hpp"
#include "hooks/mount/image_mount.hpp"
#include "hooks/mount/overlay.hpp"
#include "hooks/unpack/read_image.hpp"

namespace situla {
namespace {

/// Directories that are being filled or removed begin like this and are locked by their process. Then comes the node's
/// name: locks of directories are not seen by other nodes that share the file system.
constexpr std::string_view kHidden = ".situla-";
constexpr std::chrono::seconds kLockPatience{30};

std::string hidden_prefix(std::string_view what) {
  return std::string(kHidden) + std::string(what) + "-" + host_name() + "-";
}

/// One of this node: another one's name may begin as this node's does. Behind a dot it says more.
bool is_hidden(const std::string& name, std::string_view what) {
  const std::string prefix = hidden_prefix(what);
  return is_random_name(std::string_view(name).substr(0, name.find('.', prefix.size())), prefix);
}

/// Behind it stands the name of the container that is just being replaced where names cannot be exchanged.
constexpr std::string_view kReplaced = ".replaced.";

bool exists(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0;
}

Result<FileLock> lock_in(const PrivateDirectory& data, const std::string& name, FileLock::Kind kind,
                         std::chrono::milliseconds patience) {
  TRY_ASSIGN(UniqueFd directory, open_file_at(data.fd(), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  return FileLock::acquire(std::move(directory), kind, patience, data.path(name));
}

/// Held while a hidden name appears and is locked. Who has it alone therefore knows that what is not locked is
/// abandoned.
Result<FileLock> lock_data(const PrivateDirectory& data) {
  return lock_in(data, ".", FileLock::Kind::shared, kLockPatience);
}

/// What a create or a removal that was killed left behind. Its child processes hold its locks until they are gone, too:
/// patience is for those.
void remove_abandoned(const PrivateDirectory& data, std::chrono::milliseconds patience, LogSink& log) {
  std::vector<std::pair<std::string, FileLock>> abandoned;
  {
    const auto alone = lock_in(data, ".", FileLock::Kind::exclusive, patience);
    const auto names = list_directory(data.fd(), data.path());
    if (!alone || !names) return;
    for (const std::string& name : *names) {
      if (!is_hidden(name, "create") && !is_hidden(name, "remove")) continue;
      const size_t replaced = name.find(kReplaced);
      if (replaced != name.npos && rename_new(data.held(name), data.held(name.substr(replaced + kReplaced.size()))))
        continue;
      auto lock = lock_in(data, name, FileLock::Kind::exclusive, patience);
      if (lock) abandoned.emplace_back(name, std::move(*lock));
    }
  }
  const auto remove = [&](const std::string& name) -> Result<void> {
    TRY_ASSIGN(const auto range, range_to_remove(data.fd(), name));
    return remove_whole_tree_at(data.fd(), name, range);
  };
  for (const auto& [name, lock] : abandoned)
    if (const auto removed = remove(name); !removed) log.warning(removed.error().message());
}

/// A directory with a hidden name, removed with the object unless it was published. The data directory has to stay.
class Unfinished {
 public:
  static Result<Unfinished> make(const PrivateDirectory& data) {
    TRY_ASSIGN(const FileLock locked, lock_data(data));
    std::string name = random_name(hidden_prefix("create"));
    if (mkdirat(data.fd(), name.c_str(), 0700) != 0) return fail_errno(errno, "create directory " + data.path(name));
    TRY_ASSIGN(FileLock lock, lock_in(data, name, FileLock::Kind::exclusive, std::chrono::milliseconds(0)));
    return Unfinished(data, std::move(name), std::move(lock));
  }
  Unfinished(Unfinished&& other) noexcept
      : data_(other.data_), name_(std::exchange(other.name_, {})), lock_(std::move(other.lock_)) {}
  Unfinished& operator=(Unfinished&&) = delete;
  ~Unfinished() {
    if (!name_.empty()) (void)remove_whole_tree_at(data_.fd(), name_);
  }

  [[nodiscard]] std::string path() const { return data_.path(name_); }
  [[nodiscard]] std::string held() const { return data_.held(name_); }
  [[nodiscard]] int fd() const { return lock_.fd(); }

  /// Gives it its name. What had that name before gets the hidden one, in the same moment, and is removed; it stays
  /// where that cannot be done because of its owners.
  Result<void> publish(const std::string& name, bool replace, LogSink& log) {
    auto renamed = rename_new(held(), data_.held(name));
    if (renamed) {
      name_.clear();
      return {};
    }
    if (renamed.error().errnum() != EEXIST) return renamed;
    TRY(check_new_container(data_.path(name), replace));
    const auto range = range_to_remove(data_.fd(), name);
    if (!range) return fail(Error(range.error()).with_context("replace " + data_.path(name)));
    TRY_ASSIGN(const std::string old, exchange(name));
    // The new one is there: what is left of the old one is no reason to say that it is not.
    (void)take_back(data_.fd(), old, *range);
    if (const auto removed = remove_whole_tree_at(data_.fd(), old, *range); !removed)
      log.warning("remove what " + data_.path(name) + " was before: " + removed.error().message());
    return {};
  }

 private:
  Unfinished(const PrivateDirectory& data, std::string name, FileLock lock)
      : data_(data), name_(std::move(name)), lock_(std::move(lock)) {}

  /// What the old one is called now.
  Result<std::string> exchange(const std::string& name) {
    const auto exchanged = exchange_names(held(), data_.held(name));
    if (exchanged) return std::exchange(name_, {});
    if (exchanged.error().kind() != ErrorKind::unsupported) return fail(exchanged.error());
    // Some network file systems cannot: there is a moment without, in which nobody takes the old one for abandoned.
    // Should this process be killed there, the next one gives the old one its name back.
    TRY_ASSIGN(const FileLock whole, lock_data(data_));
    const std::string named = name_ + std::string(kReplaced) + name;
    const std::string between = named.size() > NAME_MAX ? name_ + ".old" : named, old = name_ + ".old";
    const int data = data_.fd();
    if (renameat(data, name.c_str(), data, between.c_str()) != 0)
      return fail_errno(errno, "rename " + data_.path(name));
    if (renameat(data, name_.c_str(), data, name.c_str()) != 0) {
      const int reason = errno;
      (void)renameat(data, between.c_str(), data, name.c_str());
      return fail_errno(reason, "rename " + data_.path(name_) + " to " + data_.path(name));
    }
    name_.clear();
    return renameat(data, between.c_str(), data, old.c_str()) == 0 ? old : between;
  }

  const PrivateDirectory& data_;
  std::string name_;
  FileLock lock_;
};

Result<void> layers_possible(const PrivateDirectory& data) {
  TRY(fuse_available());
  if (!modern_mount_api())
    return fail(
        Error(ErrorKind::unsupported, "this kernel cannot hand mounts over (Linux 5.2)").with_code(ErrorCode::kernel));
  if (overlay_upper_known_good(data.held())) return {};
  // A process that is killed meanwhile leaves a name that others know.
  TRY_ASSIGN(const Unfinished trial, Unfinished::make(data));
  // By path: it mounts in a namespace of its own, where what is open here cannot be mounted.
  return overlay_upper_works(trial.path());
}

/// An unnamed file of the same file system needs a name only; anything else is copied.
Result<void> keep_image(const NewContainer& request, const std::string& path) {
  const std::string from = fd_path(request.image);
  if (request.image_is_ours && linkat(AT_FDCWD, from.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) == 0)
    return {};
  struct stat status {};
  if (fstat(request.image, &status) != 0) return fail_errno(errno, "inspect the image");
  TRY_ASSIGN(const UniqueFd copy, open_file(path, O_WRONLY | O_CREAT | O_EXCL, 0600));
  TRY_CONTEXT("copy the image to " + path,
              share_or_copy(request.image, copy.get(), static_cast<uint64_t>(status.st_size)));
  return {};
}

/// nullopt: all files are the user's. By newuidmap(1) also in a step: its builder is still in no user namespace, for
/// which the broker writes maps a single time, and what situla.toml alone gives is not to be had yet.
Result<std::optional<IdRange>> fill_tree(const NewContainer& request, const std::string& data, int target,
                                         ExtractOptions options) {
  const IdRangeRule rule = request.owners ? request.owners() : IdRangeRule{SubordinateFiles::never, {}};
  const bool wanted = !rule.off() && takes_owners(data);
  const auto range = wanted ? find_own_range({rule.files, {}}) : fail(ErrorKind::not_found, "");
  if (wanted && !range) {
    const auto info = read_image_info(request.image);
    if (info && info->names_owners)
      options.log->info(
          "all files of the image become yours: the owners that it names need /etc/subuid, /etc/subgid and "
          "newuidmap(1) in an extracted container, and you cannot " +
          range.error().message());
  }
  options.owners = range.has_value();
  const auto as_root = [&](const std::function<Result<void>()>& body) { return in_own_range(body, *range); };
  TRY_ASSIGN(const bool has_owners, extract_tree(request.image, target, options, as_root));
  return has_owners ? std::optional(*range) : std::nullopt;
}

NamedContainer container_in(const std::string& directory) {
  NamedContainer container;
  container.path = directory;
  return container;
}

Result<void> fill_layered(const NewContainer& request, const std::string& directory) {
  TRY_ASSIGN(const ImageInfo info, read_image_info(request.image));
  const NamedContainer container = container_in(directory);
  for (const std::string& path : {container.state(), container.upper(), container.work()})
    if (mkdir(path.c_str(), 0700) != 0) return fail_errno(errno, "create directory " + path);
  // The upper layer's root is the container's.
  if (chmod(container.upper().c_str(), (info.root_mode & 0777U) | 0700U) != 0)
    return fail_errno(errno, "set the mode of " + container.upper());
  return keep_image(request, container.image());
}

/// Images whose root directory nobody may write to: what marks a container lies there, and its user removes it.
Result<void> make_writable(int directory) {
  struct stat status {};
  if (fstat(directory, &status) == 0 &&
      ((status.st_mode & 0700U) == 0700U || fchmod(directory, (status.st_mode & 07777U) | 0700U) == 0))
    return {};
  return fail_errno(errno, "set the mode of the new container's directory");
}

/// Before it has its name, which must not lead to a part of an image after a power cut. A tree has too many files.
Result<void> sync_layered(const std::string& directory) {
  const NamedContainer container = container_in(directory);
  for (const std::string& path : {directory + "/" + std::string(kIdentityFile), container.image()}) {
    TRY_ASSIGN(const UniqueFd file, open_file(path, O_RDONLY));
    TRY(sync_file(file.get(), "the new container's files"));
  }
  for (const std::string& path : {container.state(), directory}) sync_directory(path);
  return {};
}

Result<bool> makes_layers_in(const PrivateDirectory& data, StorageWish wish, LogSink& log) {
  if (wish == StorageWish::tree) return false;
  const auto possible = layers_possible(data);
  if (!possible && wish == StorageWish::layered) return fail(possible.error());
  if (!possible) log.debug("no layers here: " + possible.error().message());
  return possible.has_value();
}

std::string last_component(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

}  // namespace

Result<StorageWish> storage_wish(const Environment& environment, LogSink& log) {
  const std::string asked = environment.get_or("SITULA_CREATE", "");
  if (asked == "tree") return StorageWish::tree;
  if (asked == "layered") return StorageWish::layered;
  if (!asked.empty())
    return fail(Error(ErrorKind::usage, "SITULA_CREATE=" + printable(asked) + ": not a kind of container")
                    .with_code(ErrorCode::enroot_config)
                    .with_hint("tree or layered"));
  return load_site_config(log).mount == MountKind::extract ? StorageWish::tree : StorageWish::automatic;
}

std::function<IdRangeRule()> owners_wish(const Environment& environment, bool for_root) {
  return for_root && wants_range(environment) ? site_range_rule : std::function<IdRangeRule()>();
}

Result<void> check_new_container(const std::string& path, bool replace) {
  if (!exists(path) || replace) return {};
  return fail(Error(ErrorKind::exists, "File already exists: " + path)
                  .with_code(ErrorCode::container_exists)
                  .with_hint("--force replaces it"));
}

Result<bool> makes_layers(const EnrootConfig& config, StorageWish wish, LogSink& log) {
  TRY_ASSIGN(const PrivateDirectory data, open_data_directory(config));
  return makes_layers_in(data, wish, log);
}

Result<std::string> create_container(const EnrootConfig& config, const NewContainer& request, LogSink& log) {
  TRY_ASSIGN(const PrivateDirectory data, open_data_directory(config));
  TRY_ASSIGN(const bool layered, makes_layers_in(data, request.wish, log));
  remove_abandoned(data, {}, log);
  // Before an extraction that may take minutes.
  if (request.replace) TRY_CONTEXT("replace " + request.path, range_to_remove(data.fd(), last_component(request.path)));
  TRY_ASSIGN(Unfinished unfinished, Unfinished::make(data));
  std::optional<IdRange> range;
  if (layered) {
    TRY(fill_layered(request, unfinished.held()));
  } else {
    log.info("Extracting squashfs filesystem...");
    const size_t threads = std::strtoul(config.get("ENROOT_MAX_PROCESSORS").c_str(), nullptr, 10);
    TRY_ASSIGN(range, fill_tree(request, data.held(), unfinished.fd(), {.log = &log, .threads = threads}));
    // What marks a layered container. Of an image's own it says nothing.
    TRY(remove_tree_at(unfinished.fd(), ".situla"));
    TRY(make_writable(unfinished.fd()));
  }
  TRY(write_identity(unfinished.fd(), request.origin));
  TRY(write_range(unfinished.fd(), range));
  if (layered) TRY(sync_layered(unfinished.held()));
  std::string identity = identity_of(unfinished.fd());
  TRY(unfinished.publish(last_component(request.path), request.replace, log));
  return identity;
}

void remove_unfinished(const EnrootConfig& config, LogSink& log) {
  if (const auto data = PrivateDirectory::open(config.data_path(), {}))
    remove_abandoned(*data, std::chrono::milliseconds(500), log);
}

Result<void> remove_container(const EnrootConfig& config, std::string_view name, LogSink& log) {
  TRY_ASSIGN(const std::string path, container_path(config, name));
  TRY_ASSIGN(const PrivateDirectory data, open_data_directory(config));
  const std::string own(name);
  struct stat status {};
  if (fstatat(data.fd(), own.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(status.st_mode))
    return fail(
        Error(ErrorKind::not_found, "No such file or directory: " + path).with_code(ErrorCode::container_not_found));
  if (geteuid() != 0) TRY(check_owner(data, own));
  remove_abandoned(data, {}, log);
  const std::string hidden = random_name(hidden_prefix("remove"));
  std::optional<FileLock> lock;
  std::optional<IdRange> range;
  {
    TRY_ASSIGN(const FileLock locked, lock_data(data));
    auto needed = range_to_remove(data.fd(), own);
    if (!needed) return fail(std::move(needed).error().with_context("remove " + path));
    range = *needed;
    // With its owner, what is left of a removal that is killed can be locked, and so be found abandoned.
    (void)take_back(data.fd(), own, range);
    // Its owner may have taken its own rights away.
    if ((status.st_mode & 0700U) != 0700U) std::ignore = fchmodat(data.fd(), own.c_str(), 0700, 0);
    if (auto alone = lock_in(data, own, FileLock::Kind::exclusive, std::chrono::milliseconds(0)))
      lock.emplace(std::move(*alone));
    if (renameat(data.fd(), own.c_str(), data.fd(), hidden.c_str()) != 0) return fail_errno(errno, "remove " + path);
  }
  auto removed = remove_whole_tree_at(data.fd(), hidden, range);
  // What cannot be removed stays visible.
  if (!removed) (void)rename_new(data.held(hidden), data.held(own));
  return removed;
}

}  // namespace situla
