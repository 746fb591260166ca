// Which libraries are in a directory of an image, and by which names can the dynamic linker find them?
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "common/base/result.hpp"
#include "common/sys/root_dir.hpp"

namespace situla {

struct FoundLibrary {
  std::string soname;  ///< DT_SONAME; without one the file's name
  std::string path;    ///< inside the root: the link or file called as the SONAME, or the newest file
  uint32_t flags = 0;  ///< LdCacheEntry::flags
};

enum class SonameLinks { keep, make };

/// Paths of files that need not be looked at again, nor what they are links to.
using KnownFiles = std::unordered_set<std::string_view>;

/// One per SONAME and processor, chosen as ldconfig would: lib*.so* and ld-*.so* that are libraries, a file called as
/// its SONAME before others, of these the one with the highest version. SonameLinks::make adds links that lack, where
/// the directory can be written. Empty for a directory that is not there.
Result<std::vector<FoundLibrary>> find_libraries(const RootDir& root, const std::string& directory, SonameLinks links,
                                                 const KnownFiles& known = {});

}  // namespace situla
