// What does a layer say of one name?
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace situla {

enum class EntryKind : uint8_t { directory, file, symlink, hardlink, fifo, device };

struct TarEntry {
  std::string path;  ///< raw bytes, as in the archive
  EntryKind kind = EntryKind::file;
  uint16_t mode = 0;    ///< permission bits, octal 07777
  int64_t mtime = 0;    ///< seconds since the epoch
  uint64_t size = 0;    ///< of a file
  uint64_t offset = 0;  ///< of its content, in the bytes that the source gave
  bool sparse = false;  ///< the content is stored without its holes
  std::string target;   ///< of a symlink or hardlink; raw bytes
  std::vector<std::pair<std::string, std::string>> xattrs;
};

}  // namespace situla
