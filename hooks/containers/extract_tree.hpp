// How does an image become a tree on disk, with the owners that it names where those can be had?
#pragma once

#include <functional>

#include "hooks/unpack/extract.hpp"

namespace situla {

/// Runs what it is given as root of a range: in the caller's own user namespace, or in one of a child's.
using RunAsRoot = std::function<Result<void>(const std::function<Result<void>()>&)>;

/// extract_image() into an empty directory of the user's own. options.owners: as the image names them, which `as_root`
/// does; whatever keeps it from that, it begins again without, and says so. True: the files have owners of their own.
Result<bool> extract_tree(int image_fd, int target_directory_fd, ExtractOptions options, const RunAsRoot& as_root);

}  // namespace situla
