// How is a mount taken away?
#pragma once

#include <string>

#include "common/base/result.hpp"

namespace situla {

/// umount2(2). detach = MNT_DETACH. UMOUNT_NOFOLLOW always.
Result<void> unmount(const std::string& path, bool detach);
/// Takes the mount away whose root the descriptor is (MNT_DETACH), wherever it has got to.
Result<void> detach_mount(int fd);

}  // namespace situla
