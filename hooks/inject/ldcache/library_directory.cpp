#include "hooks/inject/ldcache/library_directory.hpp"

#include <climits>
#include <map>
#include <unordered_map>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/sys/directory.hpp"
#include "hooks/inject/ldcache/elf_file.hpp"
#include "hooks/inject/ldcache/ld_cache.hpp"

namespace situla {
namespace {

bool may_be_library(const std::string& name) {
  return (name.starts_with("lib") || name.starts_with("ld-")) && name.find(".so") != std::string::npos;
}

/// The name in the same directory that this name is a link to; empty if it is none or leads elsewhere.
std::string link_target(int directory_fd, const std::string& directory, const std::string& name) {
  std::string target(PATH_MAX, '\0');
  const ssize_t size = readlinkat(directory_fd, name.c_str(), target.data(), target.size());
  if (size < 0) return {};
  target.resize(static_cast<size_t>(size));
  if (target.starts_with(directory + "/")) target.erase(0, directory.size() + 1);
  return target.find('/') == std::string::npos ? target : std::string();
}

bool is_link(int directory_fd, const std::string& name) {
  struct stat status {};
  return fstatat(directory_fd, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(status.st_mode);
}

/// The names of the directory that may be libraries and are not known, also not by a link.
Result<std::vector<std::string>> candidates(int directory_fd, const std::string& directory, const KnownFiles& known) {
  TRY_ASSIGN(auto names, list_directory(directory_fd, directory));
  std::erase_if(names, [](const std::string& name) { return !may_be_library(name); });
  if (known.empty()) return names;
  std::unordered_map<std::string, std::string> targets;
  std::unordered_set<std::string> seen;
  for (const std::string& name : names) {
    std::string target = link_target(directory_fd, directory, name);
    if (known.contains(directory + "/" + name)) {
      seen.insert(name);
      seen.insert(target);
    }
    targets.emplace(name, std::move(target));
  }
  std::erase_if(names, [&](const std::string& name) {
    const std::string& target = targets[name];
    return seen.contains(name) || (!target.empty() && seen.contains(target));
  });
  return names;
}

/// Makes directory/soname a link to name, unless there is something already. What cannot be written stays as it is.
bool make_link(int directory_fd, const std::string& soname, const std::string& name) {
  struct stat status {};
  if (fstatat(directory_fd, soname.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) {
    // The only thing that may go is a link to a library that has gone, of an older driver maybe.
    if (!S_ISLNK(status.st_mode) || unlinkat(directory_fd, soname.c_str(), 0) != 0) return false;
  }
  return symlinkat(name.c_str(), directory_fd, soname.c_str()) == 0;
}

}  // namespace

Result<std::vector<FoundLibrary>> find_libraries(const RootDir& root, const std::string& directory, SonameLinks links,
                                                 const KnownFiles& known) {
  const auto opened = root.open_at(directory, O_RDONLY | O_DIRECTORY);
  if (!opened) return std::vector<FoundLibrary>();
  TRY_ASSIGN(const auto names, candidates(opened->get(), directory, known));
  std::map<std::pair<std::string, uint32_t>, std::string> chosen;  // SONAME and flags -> file
  for (const std::string& name : names) {
    // As in RootDir::read_file(): a fifo in an image must not stop the reader.
    const auto file = root.open_at(directory + "/" + name, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    struct stat status {};
    if (!file || fstat(file->get(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    const auto elf = ElfFile::read(file->get());
    const auto flags = elf ? elf->ld_flags() : std::nullopt;
    if (!flags) continue;
    const std::string& soname = elf->soname.empty() ? name : elf->soname;
    // What programs are linked with, and some load by that name: ldconfig keeps it, too.
    if (name.ends_with(".so") && name != soname && soname.starts_with(name) && is_link(opened->get(), name))
      chosen.emplace(std::pair(name, *flags), name);
    std::string& best = chosen[{soname, *flags}];
    if (best.empty() || name == soname || (best != soname && compare_ld_names(name, best) > 0)) best = name;
  }
  const bool may_link = links == SonameLinks::make && root.may_create_in(opened->get());
  std::vector<FoundLibrary> found;
  for (const auto& [key, name] : chosen) {
    const auto& [soname, flags] = key;
    const bool is_linked = name == soname || (may_link && make_link(opened->get(), soname, name));
    found.push_back({soname, directory + "/" + (is_linked ? soname : name), flags});
  }
  return found;
}

}  // namespace situla
