#include "hooks/inject/ldcache/library_cache.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>

#include "common/base/scope_exit.hpp"
#include "common/base/text.hpp"
#include "common/sys/fd_path.hpp"
#include "common/sys/file.hpp"
#include "common/sys/mount/mount_api.hpp"
#include "hooks/inject/ldcache/ld_cache.hpp"
#include "hooks/inject/ldcache/library_directory.hpp"
#include "hooks/inject/ldcache/linker_config.hpp"

namespace situla {
namespace {

constexpr std::string_view kCache = "/etc/ld.so.cache";
constexpr mode_t kFileMode = 0644;

std::string directory_of(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == 0 || slash == std::string_view::npos ? "/" : std::string(path.substr(0, slash));
}

bool is_later(const timespec& one, const timespec& other) {
  return one.tv_sec != other.tv_sec ? one.tv_sec > other.tv_sec : one.tv_nsec > other.tv_nsec;
}

/// The image's cache with what owns its texts.
class ImageCache {
 public:
  /// As the image has it, and as it would be if ldconfig had run last: enroot's hook always ran it, so images were
  /// made that rely on that. Libraries that came later into directories of ld.so.conf are found; glibc finds those of
  /// its own directories without the cache.
  static Result<ImageCache> load(const RootDir& root, LogSink& log) {
    ImageCache image;
    const auto time = image.read(root, log);
    const auto configured = configured_directories(root);
    bool changed = false;
    for (const std::string& directory : configured) {
      if (time && is_searched_by_default(directory)) continue;
      const auto opened = root.resolve(directory);
      struct stat status {};
      if (!opened || fstat(opened->get(), &status) != 0 || (time && !is_later(status.st_mtim, *time))) continue;
      TRY(image.add_directory(root, directory));
      changed = true;
    }
    if (changed) image.order_as(configured);
    return image;
  }

  LdCache cache;

 private:
  /// When the cache was made; nullopt without one that can be read.
  std::optional<timespec> read(const RootDir& root, LogSink& log) {
    const auto opened = root.resolve(kCache);
    struct stat status {};
    if (!opened || fstat(opened->get(), &status) != 0) return std::nullopt;
    auto bytes = root.read_file(kCache, kMaxLdCache);
    if (bytes) {
      bytes_ = std::make_unique<const std::string>(std::move(*bytes));
      if (auto parsed = LdCache::parse(*bytes_)) {
        cache = std::move(*parsed);
        return status.st_mtim;
      } else {
        bytes = fail(std::move(parsed).error());
      }
    }
    log.info("the image's " + std::string(kCache) + " is made anew: " + printable(bytes.error().message()));
    return std::nullopt;
  }

  Result<void> add_directory(const RootDir& root, const std::string& directory) {
    cache.drop_directory(directory);
    TRY_ASSIGN(auto found, find_libraries(root, directory, SonameLinks::keep));
    for (FoundLibrary& library : found) {
      const FoundLibrary& kept = texts_.emplace_back(std::move(library));
      cache.entries.push_back({kept.soname, kept.path, kept.flags});
    }
    return {};
  }

  /// Of several libraries of one name the directory that is configured first wins, and all others win over glibc's own.
  void order_as(const std::vector<std::string>& configured) {
    std::unordered_map<std::string, size_t> ranks;
    for (const std::string& directory : configured) ranks.emplace(directory, ranks.size());
    const auto rank = [&](const LdCacheEntry& entry) {
      const auto found = ranks.find(directory_of(entry.path));
      return found == ranks.end() ? ranks.size() : found->second;
    };
    std::vector<std::pair<size_t, LdCacheEntry>> ranked;
    for (const LdCacheEntry& entry : cache.entries) ranked.emplace_back(rank(entry), entry);
    std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::transform(ranked.begin(), ranked.end(), cache.entries.begin(), [](const auto& item) { return item.second; });
  }

  std::unique_ptr<const std::string> bytes_;
  std::deque<FoundLibrary> texts_;
};

/// All that is to be found, what comes first first. Libraries of directories that the image itself found there before
/// stay where they are in its order.
Result<std::vector<FoundLibrary>> wanted_libraries(const LibraryCacheEdit& edit, const RootDir& root,
                                                   const LdCache& before) {
  std::vector<FoundLibrary> wanted;
  const auto add = [&](std::vector<FoundLibrary> found) {
    wanted.insert(wanted.end(), std::make_move_iterator(found.begin()), std::make_move_iterator(found.end()));
  };
  for (const std::string& directory : edit.preferred) {
    TRY_ASSIGN(auto found, find_libraries(root, directory, SonameLinks::keep));
    add(std::move(found));
  }
  for (const CachedLibrary& library : edit.libraries)
    wanted.push_back({library.soname, library.path, native_ld_flags(library.is_32bit)});
  KnownFiles known;
  if (!edit.directories.empty())
    for (const LdCacheEntry& entry : before.entries) known.insert(entry.path);
  for (const std::string& directory : edit.directories) {
    TRY_ASSIGN(auto found, find_libraries(root, directory, SonameLinks::make, known));
    add(std::move(found));
  }
  return wanted;
}

/// Those that are not preferred.
std::vector<std::string> directories_of(const LibraryCacheEdit& edit, bool with_32bit) {
  std::vector<std::string> directories;
  for (const CachedLibrary& library : edit.libraries)
    if (with_32bit || !library.is_32bit) add_once(directories, directory_of(library.path));
  for (const std::string& directory : edit.directories) add_once(directories, directory);
  return directories;
}

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

/// Replaces or creates the file (mode 0644); a link there is replaced, not followed. Where the root cannot be written,
/// a file with the content is mounted over the one that is there. Where there is none either, or something that is no
/// file: a warning, and success.
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

Result<void> update_glibc(const LibraryCacheEdit& edit, const RootDir& root, LogSink& log) {
  TRY_ASSIGN(ImageCache image, ImageCache::load(root, log));
  for (const std::string& directory : earlier_preferred(root))
    if (std::find(edit.preferred.begin(), edit.preferred.end(), directory) == edit.preferred.end())
      image.cache.drop_directory(directory);
  TRY_ASSIGN(const auto wanted, wanted_libraries(edit, root, image.cache));
  std::vector<LdCacheEntry> entries;
  entries.reserve(wanted.size());
  for (const FoundLibrary& library : wanted) entries.push_back({library.soname, library.path, library.flags});
  image.cache.put(entries);
  TRY(place_file(root, kCache, image.cache.serialize(), log));
  if (const auto done = configure_directories(root, edit.preferred, directories_of(edit, true)); !done)
    log.info("ldconfig in the container will not find the host's libraries: " + done.error().message());
  return {};
}

Result<void> update_musl(const LibraryCacheEdit& edit, const RootDir& root, LogSink& log) {
  // It finds files by their names only.
  TRY(wanted_libraries(edit, root, {}));
  std::string path;
  const auto text = musl_path(root, edit.preferred, directories_of(edit, false), path);
  return text ? place_file(root, path, *text, log) : Result<void>();
}

}  // namespace

Result<void> update_library_cache(const LibraryCacheEdit& edit, const RootDir& root, LogSink& log) {
  if (edit.empty()) return {};
  const auto linkers = linkers_of(root);
  // Beside glibc musl is there for a few programs, and what it lacks is not worth a word.
  NullLog quiet;
  LogSink& musl_log = linkers.size() > 1 ? static_cast<LogSink&>(quiet) : log;
  for (const Linker linker : linkers)
    TRY_CONTEXT("make the dynamic linker find the host's libraries",
                linker == Linker::glibc ? update_glibc(edit, root, log) : update_musl(edit, root, musl_log));
  return {};
}

}  // namespace situla
