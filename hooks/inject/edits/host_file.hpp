// Is this file of the host what an edit needs? It is opened once, looked at, and only that descriptor is used from then
// on.
#pragma once

#include <optional>
#include <string>

#include <sys/stat.h>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "hooks/inject/edits/apply.hpp"

namespace situla {

struct HostFile {
  UniqueFd fd;  ///< O_PATH
  struct stat status {};
  [[nodiscard]] bool is_directory() const { return S_ISDIR(status.st_mode); }
  [[nodiscard]] bool is_device() const { return S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode); }
};

/// A source beneath the container's root is resolved inside it, so that no link of the image names a file of the host.
/// A missing one is ErrorKind::not_found.
Result<HostFile> open_host_file(const std::string& path, const EditTarget& target);

/// The type that the edit asks for; a library on a mount that forbids to run it is an error, as nothing can allow it
/// again.
Result<void> check_source(const HostFile& file, const MountEdit& edit);
/// A device, with the number that it has to have, on a mount that allows devices. Warns when this process itself may
/// not open it.
Result<void> check_device(const HostFile& file, const DeviceEdit& edit, LogSink& log);

/// Whether all of the flags are set on the mount of an open file.
bool has_flags(int fd, const MountFlags& flags);

}  // namespace situla
