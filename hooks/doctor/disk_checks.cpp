#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/file_systems.hpp"
#include "hooks/doctor/checks.hpp"

namespace situla::doctor {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30U;
constexpr uint64_t kLowSpace = 20 * kGiB;  ///< bytes; one large image and its successor
constexpr uint64_t kLowFiles = 100'000;

/// What a file system of this kind cannot do for `use`, and what to do; empty when it serves.
std::pair<std::string, std::string> shortcoming(const FileSystem& system, Use use, const std::string& path) {
  const std::string name = system.name;
  if (use == Use::data && (system.kind == FileSystemKind::network || system.kind == FileSystemKind::layers))
    return {
        "cannot be written through an overlay: containers that are created here are slow or fail to be writable",
        "set ENROOT_DATA_PATH, in enroot.conf or in your environment, to a local disk, e.g. /scratch/$(id -un)/enroot"};
  if (use == Use::store && system.kind == FileSystemKind::memory)
    return {"the images of this node take its memory", "set store_path in situla.toml to a disk"};
  if (use == Use::copies && system.kind == FileSystemKind::memory)
    return {"copies of images take memory of the node", "set local_tier in situla.toml to a disk"};
  if (use == Use::temp && system.kind == FileSystemKind::network)
    return {"every temporary file goes over the network",
            "set ENROOT_TEMP_PATH, in enroot.conf or in your environment, to a local disk"};
  if (use == Use::runtime && system.kind == FileSystemKind::network)
    return {"mounts are made here, which must be on this node",
            "set ENROOT_RUNTIME_PATH, in enroot.conf or in your environment, e.g. to /run/user/$(id -u)/enroot"};
  if (use == Use::cache && system.kind == FileSystemKind::memory && path != "/tmp")
    return {"images kept here take memory of the node",
            "set ENROOT_CACHE_PATH, in enroot.conf or in your environment, to a disk"};
  return {};
}

void worsen(Check& check, State state, const std::string& found, const std::string& fix) {
  check.found += "; " + found;
  if (check.state == State::fail || (check.state == State::warn && state == State::warn)) return;
  check.state = state;
  check.fix = fix;
}

}  // namespace

void add_disk(Check& check, const std::string& path, Use use) {
  struct statvfs space {};
  if (statvfs(path.c_str(), &space) != 0) return worsen(check, State::warn, "cannot be examined", "look at " + path);
  const FileSystem* system = file_system_of(path);
  const uint64_t bytes = uint64_t{space.f_bavail} * space.f_frsize;
  check.facts.emplace_back("fileSystem", system == nullptr ? "" : system->name);
  check.facts.emplace_back("free", format_size(bytes) + " free");
  if (system != nullptr) check.found += std::string(", ") + system->name;
  check.found += ", " + format_size(bytes) + " free";
  if ((space.f_flag & ST_RDONLY) != 0)
    worsen(check, use == Use::store ? State::fail : State::warn, "mounted read-only",
           "remount it writable, or choose another place");
  if (use == Use::data && (space.f_flag & ST_NOEXEC) != 0)
    worsen(
        check, State::warn, "mounted noexec: no program of a container that is kept here can be run",
        "set ENROOT_DATA_PATH, in enroot.conf or in your environment, to another place, or have it mounted with exec");
  if (system != nullptr)
    if (const auto [what, fix] = shortcoming(*system, use, path); !what.empty()) worsen(check, State::warn, what, fix);
  if (use != Use::runtime && bytes < kLowSpace)
    worsen(check, State::warn, "less than " + format_size(kLowSpace) + ", which a large image and its successor take",
           "make room, or choose a place on a larger disk");
  if (space.f_files > 0 && space.f_favail < kLowFiles && use == Use::data)
    worsen(check, State::warn, "room for " + std::to_string(space.f_favail) + " files only",
           "make room: extracted images have 100000 files and more");
}

Check check_user_directory(const std::string& name, const std::string& path, Use use) {
  Check check{name, State::ok, path, ""};
  if (path.empty() || path.front() != '/')
    return {name, State::warn, path.empty() ? "is not set" : path + " is no absolute path",
            "set HOME, or ENROOT_*_PATH in enroot.conf"};
  const std::string place = existing(path);
  struct stat status {};
  if (stat(place.c_str(), &status) != 0 || !S_ISDIR(status.st_mode))
    return {name, State::warn, place + " is no directory", "remove it, or set ENROOT_*_PATH to another place"};
  if (access(place.c_str(), W_OK | X_OK) != 0)
    return {name, State::warn,
            path + (place == path ? " cannot be written" : " cannot be made: " + place + " is not yours"),
            "make it writable for you, or set ENROOT_*_PATH to another place"};
  if (place != path) check.found += " (made when it is needed)";
  // Shared places have the sticky bit; a directory of one user should not let others change what he runs.
  if (place == path && (status.st_mode & S_IWOTH) != 0 && (status.st_mode & S_ISVTX) == 0)
    worsen(check, State::warn, "everybody can write to it", "chmod o-w " + shell_quote(path));
  add_disk(check, place, use);
  return check;
}

}  // namespace situla::doctor
