// What did an earlier start leave in this root to mount libraries on, that would be a broken library now?
#pragma once

#include <vector>

#include "common/base/log.hpp"
#include "common/sys/root_dir.hpp"
#include "hooks/inject/edits/edits.hpp"

namespace situla {

/// A file of the host needs a file to be mounted on. In a root that stays, an empty libcuda.so.550.54 is left behind,
/// and is no library ("file too short") once the driver's version is another. Removes, from the directories that mounts
/// of libraries go to, empty regular files lib*.so.VERSION which are none of the targets now, where
///   - the name up to ".so." is that of a target, or
///   - VERSION is that of a file that the first rule removes (libraries that the new driver no longer has).
/// No linker ever made an empty library, so nothing of the image can be meant. What cannot be removed stays. A
/// directory without any of the names that `libraries` shall get there is taken for one that no start has changed.
void remove_leftovers(const std::vector<MountStep>& mounts, const std::vector<CachedLibrary>& libraries,
                      const RootDir& root, LogSink& log);

}  // namespace situla
