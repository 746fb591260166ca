#include "hooks/inject/fabric/library_index.hpp"

#include <algorithm>
#include <array>

#include <fcntl.h>
#include <sys/stat.h>

#include "common/base/text.hpp"
#include "hooks/inject/ldcache/linker_config.hpp"
#include "hooks/inject/ldcache/path_in_root.hpp"

namespace situla::fabric {
namespace {

constexpr const char* kCache = "/etc/ld.so.cache";
constexpr size_t kMaxCache = size_t{64} << 20U;

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
  index.directories_.insert(index.directories_.end(), kDefaultDirectories.begin(), kDefaultDirectories.end());
  auto bytes = root.read_file(kCache, kMaxCache);
  if (!bytes) return index;
  index.bytes_ = std::make_unique<const std::string>(std::move(*bytes));
  if (auto cache = LdCache::parse(*index.bytes_)) index.cache_ = std::move(*cache);
  return index;
}

std::vector<std::string> LibraryIndex::places(const std::string& soname) const {
  std::vector<std::string> paths;
  const auto add = [&](const std::string& directory) { add_once(paths, directory + "/" + soname); };
  std::for_each(first_.begin(), first_.end(), add);
  for (const LdCacheEntry& entry : cache_.entries)
    if (entry.soname == soname && entry.flags == native_ld_flags(false)) add_once(paths, std::string(entry.path));
  std::for_each(directories_.begin(), directories_.end(), add);
  return paths;
}

std::optional<Library> LibraryIndex::find(const std::string& soname) const {
  for (const std::string& path : places(soname))
    if (auto library = open_library(*root_, path)) return std::move(*library);
  return std::nullopt;
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
  for (const LdCacheEntry& entry : cache_.entries)
    if (entry.soname.starts_with(prefix) && entry.flags == native_ld_flags(false))
      add_once(names, std::string(entry.soname));
  return names;
}

}  // namespace situla::fabric
