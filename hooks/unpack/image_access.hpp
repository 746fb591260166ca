// How are single inodes, names and blocks of a squashfs file read, in any order and by many threads? For serving it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.hpp"
#include "hooks/unpack/block_decompressor.hpp"

namespace situla {

/// Where an inode is: start of its metadata block in the inode table << 16 | offset in the block. Fits in 48 bits.
using InodeRef = uint64_t;

/// A place in a chain of metadata blocks.
struct MetadataPosition {
  uint64_t block = 0;   ///< of the block's header, bytes from the start of the file
  uint32_t offset = 0;  ///< in the decompressed block
};

/// One inode, as squashfs 4.0 stores it.
struct StoredInode {
  static constexpr uint32_t kNone = 0xFFFFFFFFU;
  uint32_t mode = 0;  ///< type and permissions as in st_mode
  uint32_t modification_time = 0;
  uint32_t number = 0;
  uint32_t links = 1;
  uint32_t device = 0;          ///< as squashfs encodes it
  uint64_t size = 0;            ///< regular files and symbolic links, bytes; directories: of the listing
  uint32_t attributes = kNone;  ///< index of the extended attributes
  MetadataPosition rest;        ///< files: sizes of the blocks; links: the target
  MetadataPosition listing;     ///< directories
  uint64_t start = 0;           ///< files: the first block, bytes from the start of the file
  uint32_t fragment = kNone, fragment_offset = 0;
};

struct StoredName {
  std::string name;  ///< one path component: not empty, "." or "..", no '/' and no NUL
  InodeRef inode = 0;
  uint32_t number = 0;  ///< the inode's
  uint16_t type = 0;    ///< basic inode type, 1 (directory) to 7 (socket)
};

/// Sorted by name.
using Listing = std::vector<StoredName>;

/// A part of a file's content. Without an owner it is a hole.
struct Extent {
  std::shared_ptr<const void> owner;
  const char* bytes = nullptr;
  size_t size = 0;
};

/// What threads share: the file, its superblock, and what has been decompressed.
class SharedImage;

/// One thread's access. Every number in the image is checked before it is used; nothing of it decides how much memory
/// is taken beyond the caches' limits, apart from one listing and one file's list of blocks, which take as much as in
/// the file.
class ImageAccess {
 public:
  /// The descriptor is used as long as there are readers; not owned.
  static Result<std::shared_ptr<SharedImage>> open(int image_fd);
  static Result<ImageAccess> create(std::shared_ptr<SharedImage> image);
  ImageAccess(ImageAccess&&) noexcept;
  ImageAccess& operator=(ImageAccess&&) noexcept;
  ~ImageAccess();

  [[nodiscard]] InodeRef root() const;
  [[nodiscard]] uint32_t block_bytes() const;
  [[nodiscard]] uint32_t inode_count() const;
  [[nodiscard]] uint64_t image_bytes() const;
  [[nodiscard]] bool has_attributes() const;
  Result<StoredInode> inode(InodeRef ref);
  Result<std::string> link_target(const StoredInode& link);
  /// `ref` is the directory's own.
  Result<std::shared_ptr<const Listing>> list(InodeRef ref, const StoredInode& directory);
  /// Content from offset on, at most `size` bytes, less at the end of the file.
  Result<std::vector<Extent>> read(InodeRef ref, const StoredInode& file, uint64_t offset, size_t size);
  Result<std::vector<std::pair<std::string, std::string>>> attributes(const StoredInode& inode);

 private:
  struct Block;
  struct Blocks;
  friend class SharedImage;
  ImageAccess(std::shared_ptr<SharedImage> image, BlockDecompressor decompressor);
  Result<std::shared_ptr<const Block>> metadata_block(uint64_t at);
  Result<std::shared_ptr<const Block>> data_block(uint64_t at, uint32_t word);
  Result<void> read_metadata(MetadataPosition& at, void* out, size_t size);
  template <typename Fields>
  Result<Fields> read_fields(MetadataPosition& at);
  template <typename Fields>
  Result<void> read_directory(MetadataPosition& at, StoredInode& inode);
  template <typename Fields>
  Result<void> read_file(MetadataPosition& at, StoredInode& inode);
  template <typename Fields>
  Result<void> read_special(MetadataPosition& at, bool is_long, StoredInode& inode);
  Result<void> read_link(MetadataPosition& at, bool is_long, StoredInode& inode);
  Result<std::shared_ptr<const Blocks>> blocks_of(InodeRef ref, const StoredInode& file);
  Result<Extent> block_extent(const Blocks& blocks, const StoredInode& file, uint64_t index);
  Result<Extent> fragment_extent(const StoredInode& file, size_t size);
  Result<MetadataPosition> table_entry(uint64_t table, uint64_t index, size_t entry_bytes);

  std::shared_ptr<SharedImage> image_;
  BlockDecompressor decompressor_;
};

}  // namespace situla
