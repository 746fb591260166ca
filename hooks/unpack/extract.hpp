// How does a squashfs file become a directory?
#pragma once

#include <cstddef>

#include "common/base/log.hpp"
#include "common/base/result.hpp"

namespace situla {

struct ExtractOptions {
  LogSink* log = nullptr;    ///< what could not be kept (device nodes, attributes); one message per kind. Not owned.
  bool keep_set_id = false;  ///< the tree belongs to the caller, so a set-id file would lend out the caller's rights
  bool owners = false;       ///< in a user namespace with a range: as the image has them, where it has several
  size_t threads = 0;        ///< 0: one per processor; more than 16 are of no use
};

/// Extracts into an empty directory. Everything belongs to the caller, unless `owners` are wanted; modes, modification
/// times, hard links, holes, user.* attributes and, where the kernel allows it, security.capability are kept; devices
/// and sockets are left out. Nothing is created outside the directory whatever the image contains; an image that is
/// inconsistent (bad names, duplicate names, directories that contain themselves) is ErrorKind::corrupt and leaves a
/// partial tree, which is the caller's to remove. Several threads work on it; when it returns, they are gone.
Result<void> extract_image(int image_fd, int target_directory_fd, const ExtractOptions& options);

}  // namespace situla
