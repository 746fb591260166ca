// What is the attribute security.capability of a file called in an image?
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include <endian.h>

#include "common/sys/mount/id_maps.hpp"

namespace situla {

/// value: as this process's user namespace shows it. The kernel names the root for whom it counts (capabilities(7),
/// revision 3) to those who are another in their namespace; a container's own root is every container's in an image
/// (revision 2). Of no range nothing is changed.
inline std::string capability_in_image(std::string value, const NamespaceIds& ids) {
  constexpr size_t kRootless = 20, kWhole = 24;  // revisions 2 and 3; numbers are little-endian
  constexpr size_t kRevision = 3;                // the highest byte of the first number
  if (!ids.range() || value.size() != kWhole || value[kRevision] != 3) return value;
  uint32_t root = 0;
  std::memcpy(&root, &value[kRootless], sizeof root);
  root = htole32(ids.image_uid(le32toh(root)));
  std::memcpy(&value[kRootless], &root, sizeof root);
  if (root != 0) return value;
  value[kRevision] = 2;
  value.resize(kRootless);
  return value;
}

}  // namespace situla
