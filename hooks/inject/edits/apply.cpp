#include "hooks/inject/edits/apply.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/mount_table.hpp"
#include "hooks/inject/edits/program.hpp"
#include "hooks/inject/ldcache/library_cache.hpp"

namespace situla {
namespace {

/// Read-only at last, when everything beneath them is there.
std::vector<MountStep> finished_covers(const std::vector<MountStep>& mounts) {
  std::vector<MountStep> steps;
  for (const MountStep& cover : mounts)
    if (cover.kind == StepKind::cover && cover.flags.read_only) {
      steps.push_back(cover);
      steps.back().kind = StepKind::remount;
      steps.back().parameters.clear();
    }
  return steps;
}

using Table = std::vector<MountRecord>;

/// Where the file system of this mount is mounted outside of the tree of mounts at `top`; nullptr: nowhere.
const MountRecord* found_outside(const Table& table, uint64_t mount, uint64_t top) {
  std::set<uint64_t> inside{top};
  for (const MountRecord& item : mounts_beneath(table, top)) inside.insert(item.id);
  const auto record = std::find_if(table.begin(), table.end(), [&](const auto& item) { return item.id == mount; });
  if (record == table.end()) return nullptr;
  const auto outside = std::find_if(table.begin(), table.end(), [&](const MountRecord& item) {
    return item.device == record->device && !inside.contains(item.id);
  });
  return outside == table.end() ? nullptr : &*outside;
}

/// What is known already. The kernel takes long to write its table, and longer with every library that was mounted.
struct Known {
  std::set<uint64_t> own;
  Table table;
};

Result<void> check(int directory_fd, uint64_t top, Known& known) {
  TRY_ASSIGN(const uint64_t mount, mount_id(directory_fd));
  if (mount == top || known.own.contains(mount)) return {};
  if (std::none_of(known.table.begin(), known.table.end(), [&](const auto& item) { return item.id == mount; })) {
    TRY_ASSIGN(known.table, mount_table());
  }
  const MountRecord* outside = found_outside(known.table, mount, top);
  if (outside != nullptr)
    return fail(
        Error(ErrorKind::denied,
              "the directory is the host's, on what is mounted at " + printable(outside->path) + " there")
            .with_code(ErrorCode::mount_failed)
            .with_hint("a link of the image or a mount leads there; nothing is made in directories of the host, "
                       "so what is missing has to be made beforehand"));
  known.own.insert(mount);
  return {};
}

/// The same root, in which nothing is made in a directory that is really the host's (ErrorKind::denied): one whose file
/// system is mounted outside of the root, too, unless it is the one that holds the root itself. A link of the image may
/// lead there (/usr/lib64 -> /dev/shm), and so may a mount of the site.
Result<RootDir> spare_host_directories(const RootDir& root) {
  TRY_ASSIGN(const uint64_t top, mount_id(root.fd()));
  return root.guarded([top, known = std::make_shared<Known>()](int fd) { return check(fd, top, *known); });
}

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

/// A file of the host needs a file to be mounted on. In a root that stays, an empty libcuda.so.550.54 is left behind,
/// and is no library ("file too short") once the driver's version is another. Removes, from the directories that mounts
/// of libraries go to, empty regular files lib*.so.VERSION which are none of the targets now, where
///   - the name up to ".so." is that of a target, or
///   - VERSION is that of a file that the first rule removes (libraries that the new driver no longer has).
/// No linker ever made an empty library, so nothing of the image can be meant. What cannot be removed stays. A
/// directory without any of the names that `libraries` shall get there is taken for one that no start has changed.
void remove_leftovers(const std::vector<MountStep>& mounts, const std::vector<CachedLibrary>& libraries,
                      const RootDir& root, LogSink& log) {
  for (const auto& [path, targets] : targets_by_directory(mounts)) {
    const auto directory = root.open_at(path, O_RDONLY | O_DIRECTORY);
    if (directory && may_have_leftovers(path, libraries, directory->get()) && root.may_create_in(directory->get()))
      clean(path, targets, directory->get(), log);
  }
}

}  // namespace

Result<void> apply(const ContainerEdits& edits, const ApplyTarget& target, LogSink& log) {
  // Nearly all hooks of nearly all containers.
  if (edits.mounts.empty() && edits.files.empty() && edits.programs.empty() && edits.libraries.empty()) return {};
  std::optional<RootDir> own;
  if (!edits.in_host_directories) {
    TRY_ASSIGN(own, spare_host_directories(target.root));
  }
  const ApplyTarget spared{own ? *own : target.root, target.root_path, target.working_directory};
  remove_leftovers(edits.mounts, edits.libraries.libraries, spared.root, log);
  TRY(mount_steps(edits.mounts, spared, log));
  TRY(apply_file_changes(edits.files, spared.root, log));
  TRY(mount_steps(finished_covers(edits.mounts), spared, log));
  for (const ProgramEdit& program : edits.programs)
    TRY_CONTEXT((program.origin.empty() ? "" : program.origin + ": ") + "run " + printable(program.path),
                run_program(program, spared, log));
  return edits.libraries.empty() ? Result<void>() : update_library_cache(edits.libraries, spared.root, log);
}

}  // namespace situla
