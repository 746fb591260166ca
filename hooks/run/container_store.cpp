#include "hooks/run/container_store.hpp"

#include <climits>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/spec/site_config.hpp"
#include "common/sys/file.hpp"
#include "common/sys/mount_api.hpp"
#include "hooks/mount/image_mount.hpp"
#include "hooks/mount/overlay.hpp"
#include "hooks/unpack/extract.hpp"

namespace situla {
namespace {

/// Directories that are being filled or removed begin like this and are locked by their process. Then comes the node's
/// name: locks of directories are not seen by other nodes that share the file system.
constexpr std::string_view kHidden = ".situla-";
constexpr std::chrono::seconds kPatience{30};

std::string hidden_prefix(std::string_view what) {
  std::string node(HOST_NAME_MAX + 1, '\0');
  (void)gethostname(node.data(), node.size() - 1);
  return std::string(kHidden) + std::string(what) + "-" + node.c_str() + "-";
}

bool exists(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0;
}

Result<FileLock> lock_directory(const std::string& path, FileLock::Kind kind, std::chrono::milliseconds patience) {
  TRY_ASSIGN(UniqueFd directory, open_file(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  return FileLock::acquire(std::move(directory), kind, patience, path);
}

/// Held while a hidden name appears and is locked. Who has it alone therefore knows that what is not locked is
/// abandoned.
Result<FileLock> lock_data(const std::string& data_path) {
  return lock_directory(data_path, FileLock::Kind::shared, kPatience);
}

/// What a create or a removal that was killed left behind. Its child processes hold its locks until they are gone, too:
/// patience is for those.
void remove_abandoned(const std::string& data_path, std::chrono::milliseconds patience, LogSink& log) {
  std::vector<std::pair<std::string, FileLock>> abandoned;
  {
    const auto alone = lock_directory(data_path, FileLock::Kind::exclusive, patience);
    if (!alone) return;
    std::error_code error;
    for (std::filesystem::directory_iterator it(data_path, error), end; !error && it != end; it.increment(error)) {
      const std::string name = it->path().filename().string();
      if (!name.starts_with(hidden_prefix("create")) && !name.starts_with(hidden_prefix("remove"))) continue;
      auto lock = lock_directory(it->path().string(), FileLock::Kind::exclusive, patience);
      if (lock) abandoned.emplace_back(it->path().string(), std::move(*lock));
    }
  }
  for (const auto& [path, lock] : abandoned)
    if (const auto removed = remove_tree(path); !removed) log.warning(removed.error().message());
}

/// A directory with a hidden name, removed with the object unless it was published.
class Unfinished {
 public:
  static Result<Unfinished> make(const std::string& data_path) {
    TRY_ASSIGN(const FileLock data, lock_data(data_path));
    std::string path = data_path + "/" + random_name(hidden_prefix("create"));
    if (mkdir(path.c_str(), 0700) != 0) return fail_errno(errno, "create directory " + path);
    TRY_ASSIGN(FileLock lock, lock_directory(path, FileLock::Kind::exclusive, std::chrono::milliseconds(0)));
    return Unfinished(std::move(path), std::move(lock));
  }
  Unfinished(Unfinished&& other) noexcept : path_(std::exchange(other.path_, {})), lock_(std::move(other.lock_)) {}
  Unfinished& operator=(Unfinished&&) = delete;
  ~Unfinished() {
    if (!path_.empty()) (void)remove_tree(path_);
  }

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] int fd() const { return lock_.fd(); }

  /// Gives it its name. What had that name before gets the hidden one, in the same moment, and is removed.
  Result<void> publish(const std::string& path, bool replace) {
    auto renamed = rename_new(path_, path);
    if (renamed) {
      path_.clear();
      return {};
    }
    if (renamed.error().errnum() != EEXIST) return renamed;
    TRY(check_new_container(path, replace));
    return exchange(path);
  }

 private:
  Unfinished(std::string path, FileLock lock) : path_(std::move(path)), lock_(std::move(lock)) {}

  Result<void> exchange(const std::string& path) {
    auto exchanged = exchange_names(path_, path);
    if (exchanged) return remove_tree(std::exchange(path_, {}));
    if (exchanged.error().kind() != ErrorKind::unsupported) return exchanged;
    // Some network file systems cannot: there is a moment without.
    const std::string old = path_ + ".old";
    if (rename(path.c_str(), old.c_str()) != 0) return fail_errno(errno, "rename " + path);
    if (rename(path_.c_str(), path.c_str()) != 0) {
      const int reason = errno;
      (void)rename(old.c_str(), path.c_str());
      return fail_errno(reason, "rename " + path_ + " to " + path);
    }
    path_.clear();
    return remove_tree(old);
  }

  std::string path_;
  FileLock lock_;
};

Result<void> layers_possible(const std::string& data_path) {
  TRY(fuse_available());
  if (!modern_mount_api()) return fail(ErrorKind::unsupported, "this kernel cannot hand mounts over (Linux 5.2)");
  if (overlay_upper_known_good(data_path)) return {};
  // A process that is killed meanwhile leaves a name that others know.
  TRY_ASSIGN(const Unfinished trial, Unfinished::make(data_path));
  return overlay_upper_works(trial.path());
}

/// An unnamed file of the same file system needs a name only; anything else is copied.
Result<void> keep_image(const NewContainer& request, const std::string& path) {
  const std::string from = "/proc/self/fd/" + std::to_string(request.image);
  if (request.image_is_ours && linkat(AT_FDCWD, from.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) == 0)
    return {};
  struct stat status {};
  if (fstat(request.image, &status) != 0) return fail_errno(errno, "inspect the image");
  TRY_ASSIGN(const UniqueFd copy, open_file(path, O_WRONLY | O_CREAT | O_EXCL, 0600));
  TRY_CONTEXT("copy the image to " + path,
              copy_range(request.image, 0, copy.get(), 0, static_cast<uint64_t>(status.st_size)));
  return {};
}

Result<void> fill_layered(const NewContainer& request, const std::string& directory) {
  TRY_ASSIGN(const ImageInfo info, read_image_info(request.image));
  NamedContainer container;
  container.path = directory;
  for (const std::string& path : {container.state(), container.upper(), container.work()})
    if (mkdir(path.c_str(), 0700) != 0) return fail_errno(errno, "create directory " + path);
  // The upper layer's root is the container's.
  if (chmod(container.upper().c_str(), (info.root_mode & 0777U) | 0700U) != 0)
    return fail_errno(errno, "set the mode of " + container.upper());
  return keep_image(request, container.image());
}

}  // namespace

Result<StorageWish> storage_wish(const Environment& environment, LogSink& log) {
  const std::string asked = environment.get_or("SITULA_CREATE", "");
  if (asked == "tree") return StorageWish::tree;
  if (asked == "layered") return StorageWish::layered;
  if (!asked.empty())
    return fail(Error(ErrorKind::usage, "SITULA_CREATE=" + printable(asked) + ": not a kind of container")
                    .with_hint("tree or layered"));
  const Result<SiteConfig> site = SiteConfig::load(SITULA_SYSCONF_DIR "/situla.toml");
  if (!site) log.warning("ignoring " + site.error().message());
  return site && site->mount == MountKind::extract ? StorageWish::tree : StorageWish::automatic;
}

Result<void> check_new_container(const std::string& path, bool replace) {
  if (!exists(path) || replace) return {};
  return fail(Error(ErrorKind::exists, "File already exists: " + path).with_hint("--force replaces it"));
}

Result<bool> makes_layers(const EnrootConfig& config, StorageWish wish, LogSink& log) {
  TRY(make_directories(config.data_path(), 0700));
  if (wish == StorageWish::tree) return false;
  const auto possible = layers_possible(config.data_path());
  if (!possible && wish == StorageWish::layered) return fail(possible.error());
  if (!possible) log.debug("no layers here: " + possible.error().message());
  return possible.has_value();
}

Result<void> create_container(const EnrootConfig& config, const NewContainer& request, LogSink& log) {
  TRY_ASSIGN(const bool layered, makes_layers(config, request.wish, log));
  const std::string data_path = config.data_path();
  remove_abandoned(data_path, {}, log);
  TRY_ASSIGN(Unfinished unfinished, Unfinished::make(data_path));
  if (layered) {
    TRY(fill_layered(request, unfinished.path()));
  } else {
    log.info("Extracting squashfs filesystem...");
    const size_t threads = std::strtoul(config.get("ENROOT_MAX_PROCESSORS").c_str(), nullptr, 10);
    TRY(extract_image(request.image, unfinished.fd(), ExtractOptions{.log = &log, .threads = threads}));
  }
  return unfinished.publish(request.path, request.replace);
}

void remove_unfinished(const EnrootConfig& config, LogSink& log) {
  remove_abandoned(config.data_path(), std::chrono::milliseconds(500), log);
}

Result<void> remove_container(const EnrootConfig& config, std::string_view name, LogSink& log) {
  TRY_ASSIGN(const std::string path, container_path(config, name));
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode))
    return fail(ErrorKind::not_found, "No such file or directory: " + path);
  const std::string data_path = config.data_path();
  remove_abandoned(data_path, {}, log);
  const std::string hidden = data_path + "/" + random_name(hidden_prefix("remove"));
  std::optional<FileLock> lock;
  {
    TRY_ASSIGN(const FileLock data, lock_data(data_path));
    // Its owner may have taken its own rights away.
    if ((status.st_mode & 0700U) != 0700U) (void)chmod(path.c_str(), 0700);
    if (auto locked = lock_directory(path, FileLock::Kind::exclusive, std::chrono::milliseconds(0)))
      lock.emplace(std::move(*locked));
    if (rename(path.c_str(), hidden.c_str()) != 0) return fail_errno(errno, "remove " + path);
  }
  auto removed = remove_tree(hidden);
  // What cannot be removed stays visible.
  if (!removed) (void)rename_new(hidden, path);
  return removed;
}

}  // namespace situla
