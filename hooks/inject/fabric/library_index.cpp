#include "hooks/inject/fabric/library_index.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include <fcntl.h>
#include <sys/stat.h>

#include "common/base/text.hpp"
#include "hooks/inject/ldcache/linker_config.hpp"
#include "hooks/inject/ldcache/path_in_root.hpp"

namespace situla::fabric {
namespace {

constexpr const char* kCache = "/etc/ld.so.cache";
/// An image says where to look, and may say much: so many of LD_LIBRARY_PATH, of the cache and of directories count.
constexpr size_t kMostPlaces = 64;

/// Where glibc looks last, on all distributions.
#if defined(__x86_64__)
constexpr std::array<const char*, 6> kDefaultDirectories = {
    "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"};
#elif defined(__aarch64__)
constexpr std::array<const char*, 6> kDefaultDirectories = {
    "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"};
#elif defined(__powerpc64__)
constexpr std::array<const char*, 6> kDefaultDirectories = {
    "/lib/powerpc64le-linux-gnu", "/usr/lib/powerpc64le-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"};
#else
#error "which directories have libraries on this architecture?"
#endif

bool is_before(const LdCacheEntry& one, const LdCacheEntry& other) {
  return one.soname < other.soname;
}

}  // namespace

Result<Library> open_library(const RootDir& root, const std::string& path) {
  TRY_ASSIGN(const UniqueFd fd, root.open_at(path, O_RDONLY | O_NONBLOCK));  // a FIFO must not make us wait
  struct stat status {};
  if (fstat(fd.get(), &status) != 0) return fail_errno(errno, "inspect " + path);
  if (!S_ISREG(status.st_mode)) return fail(ErrorKind::corrupt, path + " is no regular file");
  TRY_ASSIGN(const ElfFile elf, ElfFile::read(fd.get()));
  if (elf.ld_flags() != native_ld_flags(false)) return fail(ErrorKind::corrupt, path + " is for another processor");
  Library library;
  TRY_ASSIGN(library.path, path_in_root(root, fd.get()));
  TRY_ASSIGN(library.linkage, ElfFile::read_linkage(fd.get()));
  return library;
}

LibraryIndex LibraryIndex::load(const RootDir& root, std::vector<std::string> first) {
  LibraryIndex index;
  index.root_ = &root;
  index.first_ = std::move(first);
  index.directories_ = configured_directories(root);
  index.directories_.resize(std::min(index.directories_.size(), kMostPlaces - kDefaultDirectories.size()));
  index.directories_.insert(index.directories_.end(), kDefaultDirectories.begin(), kDefaultDirectories.end());
  auto bytes = root.read_file(kCache, kMaxLdCache);
  if (!bytes) return index;
  index.bytes_ = std::make_unique<const std::string>(std::move(*bytes));
  if (auto cache = LdCache::parse(*index.bytes_)) index.entries_ = std::move(cache->entries);
  std::erase_if(index.entries_, [](const LdCacheEntry& entry) { return entry.flags != native_ld_flags(false); });
  std::stable_sort(index.entries_.begin(), index.entries_.end(), is_before);
  return index;
}

std::vector<std::string> LibraryIndex::places(const std::string& soname) const {
  std::vector<std::string> paths;
  const auto add_from = [&](const std::vector<std::string>& directories) {
    for (size_t i = 0; i < std::min(directories.size(), kMostPlaces); ++i)
      add_once(paths, directories[i] + "/" + soname);
  };
  add_from(first_);
  const auto [first, last] =
      std::equal_range(entries_.begin(), entries_.end(), LdCacheEntry{.soname = soname, .path = {}}, is_before);
  for (auto entry = first; entry != first + std::min<std::ptrdiff_t>(last - first, kMostPlaces); ++entry)
    add_once(paths, std::string(entry->path));
  add_from(directories_);
  return paths;
}

const std::optional<Library>& LibraryIndex::find(const std::string& soname) const {
  const auto [entry, is_new] = found_.try_emplace(soname);
  if (!is_new) return entry->second;
  for (const std::string& path : places(soname)) {
    auto library = open_library(*root_, path);
    if (!library) continue;
    entry->second = std::move(*library);
    break;
  }
  return entry->second;
}

std::vector<Library> LibraryIndex::find_all(const std::string& soname) const {
  std::vector<Library> found;
  for (const std::string& path : places(soname)) {
    auto library = open_library(*root_, path);
    if (library &&
        std::none_of(found.begin(), found.end(), [&](const Library& one) { return one.path == library->path; }))
      found.push_back(std::move(*library));
  }
  return found;
}

std::vector<std::string> LibraryIndex::names_like(std::string_view prefix) const {
  std::vector<std::string> names;
  for (auto entry =
           std::lower_bound(entries_.begin(), entries_.end(), LdCacheEntry{.soname = prefix, .path = {}}, is_before);
       entry != entries_.end() && entry->soname.starts_with(prefix) && names.size() < kMostPlaces; ++entry)
    if (names.empty() || names.back() != entry->soname) names.emplace_back(entry->soname);
  return names;
}

}  // namespace situla::fabric
