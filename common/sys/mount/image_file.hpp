// How is a squashfs file opened that a user named?
#pragma once

#include <string>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"

namespace situla {

/// For reading, as the calling user. ErrorKind::usage for what is no regular file.
Result<UniqueFd> open_image_file(const std::string& path);

}  // namespace situla
