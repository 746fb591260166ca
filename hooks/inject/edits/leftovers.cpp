#include "hooks/inject/edits/leftovers.hpp"

#include <map>
#include <optional>
#include <set>
#include <string>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/directory.hpp"

namespace situla {
namespace {

struct LibraryName {
  std::string stem;     ///< "libcuda"
  std::string version;  ///< "550.54.15"
};

std::optional<LibraryName> parse_library_name(const std::string& name) {
  const size_t middle = name.find(".so.");
  if (!name.starts_with("lib") || middle == std::string::npos || middle + 4 == name.size()) return std::nullopt;
  return LibraryName{name.substr(0, middle), name.substr(middle + 4)};
}

/// The targets in one directory.
struct Targets {
  std::set<std::string> names, stems;
};

std::map<std::string, Targets> targets_by_directory(const std::vector<MountStep>& mounts) {
  std::map<std::string, Targets> all;
  for (const MountStep& mount : mounts) {
    if (mount.kind != StepKind::host_file) continue;
    const size_t slash = mount.target.rfind('/');
    if (slash == std::string::npos) continue;
    const std::string name = mount.target.substr(slash + 1);
    const auto library = parse_library_name(name);
    if (!library) continue;
    Targets& targets = all[mount.target.substr(0, slash + 1)];
    targets.names.insert(name);
    targets.stems.insert(library->stem);
  }
  return all;
}

/// An earlier start has made names for the linker beside the files. To ask for each costs nothing, as it is about to be
/// made; to list a directory of a thousand libraries of the image takes as long as to mount twenty.
bool may_have_leftovers(const std::string& path, const std::vector<CachedLibrary>& libraries, int directory_fd) {
  bool named = false;
  for (const CachedLibrary& library : libraries) {
    if (!library.path.starts_with(path) || library.path.find('/', path.size()) != std::string::npos) continue;
    named = true;
    struct stat status {};
    if (fstatat(directory_fd, library.path.c_str() + path.size(), &status, AT_SYMLINK_NOFOLLOW) == 0) return true;
  }
  return !named;
}

bool is_empty_file(int directory_fd, const std::string& name) {
  struct stat status {};
  return fstatat(directory_fd, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(status.st_mode) &&
         status.st_size == 0;
}

void clean(const std::string& path, const Targets& targets, int directory_fd, LogSink& log) {
  const auto names = list_directory(directory_fd, path);
  if (!names) return;
  std::map<std::string, LibraryName> empty;
  std::set<std::string> old_versions;
  for (const std::string& name : *names) {
    const auto library = parse_library_name(name);
    if (!library || targets.names.contains(name) || !is_empty_file(directory_fd, name)) continue;
    empty.emplace(name, *library);
    if (targets.stems.contains(library->stem)) old_versions.insert(library->version);
  }
  for (const auto& [name, library] : empty) {
    if (!old_versions.contains(library.version)) continue;
    if (unlinkat(directory_fd, name.c_str(), 0) == 0)
      log.debug("removed " + printable(path + name) + ", left from another driver");
  }
}

}  // namespace

void remove_leftovers(const std::vector<MountStep>& mounts, const std::vector<CachedLibrary>& libraries,
                      const RootDir& root, LogSink& log) {
  for (const auto& [path, targets] : targets_by_directory(mounts)) {
    const auto directory = root.open_at(path, O_RDONLY | O_DIRECTORY);
    if (directory && may_have_leftovers(path, libraries, directory->get()) && root.may_create_in(directory->get()))
      clean(path, targets, directory->get(), log);
  }
}

}  // namespace situla
