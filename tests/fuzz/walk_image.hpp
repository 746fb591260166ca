// What is in a squashfs file that somebody made? A walk over all that a small one can have.
#pragma once

#include <cstdlib>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <sys/stat.h>

#include "hooks/unpack/image_access.hpp"

namespace situla {

struct WalkedImage {
  std::vector<StoredInode> inodes;
  std::set<std::string> names;
};

/// Some hundred inodes, each once.
inline WalkedImage walk_image(ImageAccess& image) {
  constexpr size_t kMostInodes = 300;
  WalkedImage walked;
  const auto top = image.top();
  if (!top) return walked;
  std::set<InodeRef> seen = {top->ref};
  walked.inodes.push_back(*top);
  for (size_t i = 0; i < walked.inodes.size(); ++i) {
    const StoredInode inode = walked.inodes[i];
    if (!S_ISDIR(inode.mode)) continue;
    const auto names = image.list(inode);
    if (!names) continue;
    for (const StoredName& name : **names) {
      if (name.name.empty() || name.name == "." || name.name == ".." || name.name.size() > 255 ||
          name.name.find_first_of(std::string_view("/\0", 2)) != std::string::npos)
        std::abort();
      if (find_name(**names, name.name) == nullptr) std::abort();
      walked.names.insert(name.name);
      if (walked.inodes.size() >= kMostInodes || !seen.insert(name.inode).second) continue;
      if (const auto next = image.inode(name.inode)) walked.inodes.push_back(*next);
    }
  }
  return walked;
}

}  // namespace situla
