// How does an image without an sftp-server get one?
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include "common/base/result.hpp"

namespace situla::cli {

/// Copies the host's sftp-server, and what it is linked with, into the container of that process, beneath /var/run,
/// unless they are there. The command that runs it inside.
Result<std::vector<std::string>> bring_sftp_server(pid_t pid);

}  // namespace situla::cli
