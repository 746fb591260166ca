// What does a squashfs file say about itself?
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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
  bool names_owners = false;       ///< names_owners() of its ids
};

/// Whether an image says whose its files are, by the numbers that are owners and groups in it: there is root's, 0, and
/// another. In one that a user has packed as he is (mksquashfs without -all-root) all are of his own numbers, and mean
/// root's.
bool names_owners(const std::vector<uint32_t>& ids);

}  // namespace situla
