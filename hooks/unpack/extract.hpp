// How does a squashfs file become a directory?
#pragma once

#include "common/base/result.hpp"
#include "hooks/unpack/extract_options.hpp"

namespace situla {

/// Extracts into an empty directory. Everything belongs to the caller; modes, modification times, hard links, holes,
/// user.* attributes and, where the kernel allows it, security.capability are kept; devices and sockets are left out.
/// Nothing is created outside the directory whatever the image contains; an image that is inconsistent (bad names,
/// duplicate names, directories that contain themselves) is ErrorKind::corrupt and leaves a partial tree, which is the
/// caller's to remove. Several threads work on it; when it returns, they are gone.
Result<void> extract_image(int image_fd, int target_directory_fd, const ExtractOptions& options);

}  // namespace situla
