// What do the halves of ImageAccess share: image_nodes.cpp (inodes, names, attributes) and image_content.cpp
// (content)?
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hooks/squashfs/layout.hpp"
#include "hooks/unpack/block_cache.hpp"
#include "hooks/unpack/image_access.hpp"

namespace situla {

/// The error of an image that is not what it has to be.
inline Error damaged_image(std::string_view what) {
  return Error(ErrorKind::corrupt, "read image: " + std::string(what)).with_code(ErrorCode::image_damaged);
}

struct ImageAccess::Block {
  std::unique_ptr<char[]> bytes;
  size_t size = 0;
  uint64_t next = 0;  ///< metadata: where the following block begins
};

/// Where the blocks of a file lie.
struct ImageAccess::Blocks {
  std::vector<uint64_t> starts;
  std::vector<uint32_t> words;  ///< stored size, bit 24 set when not compressed; 0 is a hole
};

/// What threads share: the file, its superblock, and what has been decompressed.
struct ImageAccess::Shared {
  // In memory of the job that uses the image, so modest; what has been read stays in the kernel's page cache.
  static constexpr size_t kCacheBytes = size_t{24} << 20U;
  static constexpr size_t kListBytes = size_t{8} << 20U;

  int fd = -1;
  ImageInfo info;
  squashfs::Superblock super{};
  squashfs::AttributeTable attributes{};
  BlockCache<Block> blocks;  ///< by metadata_key() and data_key()
  BlockCache<Blocks> files;
  BlockCache<Listing> listings;

  /// share: of the usual caches it has one part in so many.
  explicit Shared(size_t share)
      : blocks(kCacheBytes / share), files(kListBytes / share), listings(kListBytes / share) {}

  // An image may name one place as both, and what is there then is not the same.
  static uint64_t metadata_key(uint64_t at) { return at << 1U; }
  static uint64_t data_key(uint64_t at) { return at << 1U | 1U; }

  /// The superblock and what it says. The descriptor is not owned.
  Result<void> load(int image_fd);
  /// Bytes read, less than `size` at the end of the file; offset: in the image.
  Result<size_t> read(uint64_t offset, char* out, size_t size) const;
};

}  // namespace situla
