// Is this file of the host what a step needs? It is opened once, looked at, and only that descriptor is used from then
// on.
#pragma once

#include <optional>
#include <string>

#include <sys/stat.h>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "hooks/mount/plan.hpp"

namespace situla {

struct MountSource {
  UniqueFd fd;  ///< O_PATH
  struct stat status {};
  [[nodiscard]] bool is_directory() const { return S_ISDIR(status.st_mode); }
  [[nodiscard]] bool is_device() const { return S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode); }
};

/// Where a source beneath the container's root is in it. nullopt: it is the host's.
std::optional<std::string> path_in_root(const std::string& path, const ApplyTarget& target);

/// A source beneath the container's root is resolved inside it, so that no link of the image names a file of the host.
/// A missing one is ErrorKind::not_found.
Result<MountSource> open_source(const MountStep& step, const ApplyTarget& target);

/// What a step of an image names: "data.sqsh/train/0" is the file data.sqsh and what is at train/0 in it.
struct ImagePath {
  std::string file, inside;
};
/// By what is there: the longest part of the path that is no directory. ErrorKind::not_found when nothing is, and
/// ErrorKind::usage for a directory.
Result<ImagePath> image_path(const std::string& path);

/// Of a host_file the type that it has to have; a library on a mount that forbids to run it is an error, as nothing can
/// allow it again. Of a device the number, on a mount that allows devices; warns when this process itself may not open
/// it. Nothing of other steps.
Result<void> check_source(const MountSource& source, const MountStep& step, LogSink& log);

/// Whether all of the flags are set on the mount of an open file.
bool has_flags(int fd, const MountFlags& flags);

}  // namespace situla
