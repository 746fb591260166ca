// The least that passes for an image where only its size and superblock are looked at.
#pragma once

#include <string>

namespace situla::test {

/// Of squashfs 4.0, 96 bytes, which it gives as the size of the whole.
inline std::string superblock() {
  std::string head(96, '\0');
  head.replace(0, 4, "hsqs");
  head[28] = 4;
  head[40] = 96;
  return head;
}

}  // namespace situla::test
