// Which of the host's libraries can take the place of an image's, and what else has to come with them? By what the
// files say of themselves: SONAMEs, versions of symbols, libraries that they need.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "hooks/inject/fabric/library_index.hpp"

namespace situla::fabric {

/// Where libraries go that the image does not have.
inline constexpr const char* kDirectory = "/usr/lib/situla-fabric";

/// One of the host's that the container gets.
struct Taken {
  Library library;                   ///< the host's
  std::vector<std::string> targets;  ///< inside: the image's files in whose place it comes, or one in kDirectory
  bool added = false;                ///< the image has none, so its linker has to be told
};

/// By SONAME. A copy is what may still be given up.
using Closure = std::map<std::string, Taken>;

/// Whether the numbers in the files' names say which library is the newer one: "libfabric.so.1.18.0". Those of
/// different makers do not: each MPI of MPICH's interface counts its own way.
enum class FileNumbers : uint8_t { compare, ignore };

/// Adds libraries that belong together, and what they need; of all but the first the node may lack some. The image's
/// own is replaced when its SONAME is the same, the host's has every version of symbols that it has, and is not the
/// older one by the numbers in the files' names. Of what a library needs the image's is used, if it has the versions
/// that are needed (GLIBC_2.38 of libc.so.6); what the image lacks comes from the host, but nothing of a C library.
/// What needs glibc's inner symbols (GLIBC_PRIVATE) fits no other glibc. ErrorKind::not_found: the host, or neither of
/// both, has it. ErrorKind::unsupported: it does not fit; says why.
Result<void> take(const std::vector<std::string>& sonames, FileNumbers numbers, const LibraryIndex& host,
                  const LibraryIndex& image, Closure& closure);

/// What a library needs, without itself: for one that its parent loads by its path. `beside`: names of those that its
/// parent loads in the same way.
Result<void> take_needed(const Library& library, const LibraryIndex& host, const LibraryIndex& image, Closure& closure,
                         const std::vector<std::string>& beside = {});

}  // namespace situla::fabric
