// What does a squashfs file say about itself?
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace situla {

/// From the superblock (kernel documentation, filesystems/squashfs.rst) and the id table.
struct ImageInfo {
  std::string compressor;   ///< "gzip", "zstd", "lz4", "lzo", "xz", "lzma"
  uint32_t block_size = 0;  ///< bytes
  uint32_t inodes = 0;
  uint64_t offset = 0;             ///< of the image in the file, bytes; not 0 in a bundle (hooks/bundle) or a SIF file
  uint64_t bytes_used = 0;         ///< bytes without padding
  uint32_t modification_time = 0;  ///< seconds since 1970
  uint32_t root_mode = 0;          ///< of the top directory, octal 07777
  /// Every file's owner and group, when one number serves for all of them (0 in images made with -all-root).
  std::optional<uint32_t> only_owner;
};

}  // namespace situla
