#include "hooks/inject/ldcache/library_directory.hpp"

#include <map>
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

Result<std::vector<FoundLibrary>> find_libraries(const RootDir& root, const std::string& directory, SonameLinks links) {
  const auto opened = root.open_at(directory, O_RDONLY | O_DIRECTORY);
  if (!opened) return std::vector<FoundLibrary>();
  TRY_ASSIGN(const auto names, list_directory(opened->get(), directory));
  std::map<std::pair<std::string, uint32_t>, std::string> chosen;  // SONAME and flags -> file
  for (const std::string& name : names) {
    if (!may_be_library(name)) continue;
    // As in RootDir::read_file(): a fifo in an image must not stop the reader.
    const auto file = root.open_at(directory + "/" + name, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    struct stat status {};
    if (!file || fstat(file->get(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    const auto elf = ElfFile::read(file->get());
    const auto flags = elf ? elf->ld_flags() : std::nullopt;
    if (!flags) continue;
    const std::string& soname = elf->soname.empty() ? name : elf->soname;
    std::string& best = chosen[{soname, *flags}];
    if (best.empty() || name == soname || (best != soname && compare_ld_names(name, best) > 0)) best = name;
  }
  std::vector<FoundLibrary> found;
  for (const auto& [key, name] : chosen) {
    const auto& [soname, flags] = key;
    const bool is_linked = name == soname || (links == SonameLinks::make && make_link(opened->get(), soname, name));
    found.push_back({soname, directory + "/" + (is_linked ? soname : name), flags});
  }
  return found;
}

}  // namespace situla
