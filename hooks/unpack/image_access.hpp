// What is in a squashfs file? Inodes, names, data and attributes, in any order and by many threads, checked as they are
// read.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.hpp"
#include "hooks/squashfs/stored_file.hpp"
#include "hooks/unpack/block_decompressor.hpp"
#include "hooks/unpack/image_info.hpp"

namespace situla {

namespace squashfs {
struct FragmentEntry;
}

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
  InodeRef ref = 0;
  uint32_t mode = 0;               ///< type and permissions as in st_mode
  uint32_t modification_time = 0;  ///< seconds since 1970
  uint16_t owner = 0, group = 0;   ///< places in ImageAccess::owners()
  uint32_t number = 0;             ///< the same number is the same file (hard links)
  uint32_t links = 1;
  uint32_t device = 0;          ///< as squashfs encodes it
  uint64_t size = 0;            ///< regular files and symbolic links, bytes; directories: of the listing
  uint32_t attributes = kNone;  ///< index of the extended attributes
  MetadataPosition rest;        ///< files: sizes of the blocks; links: the target
  MetadataPosition listing;     ///< directories
  uint64_t start = 0;           ///< files: the first block, bytes from the start of the file
  uint64_t sparse = 0;          ///< files: bytes in blocks that are not stored
  uint32_t fragment = kNone, fragment_offset = 0;  ///< files: the block that the tail shares with those of others
};

struct StoredName {
  std::string name;  ///< one path component: not empty, "." or "..", no '/' and no NUL
  InodeRef inode = 0;
  uint32_t number = 0;  ///< the inode's
  uint16_t type = 0;    ///< basic inode type, 1 (directory) to 7 (socket)
};

/// Sorted by name.
using Listing = std::vector<StoredName>;
/// Null: it has no such name.
const StoredName* find_name(const Listing& names, std::string_view name);

/// A part of a file's content. Without an owner it is a hole.
struct Extent {
  std::shared_ptr<const void> owner;
  const char* bytes = nullptr;
  size_t size = 0;
};

/// How much of an image is kept decompressed: at most 40 MiB, or 2.5 MiB, for one of very many.
enum class ImageCaches { usual, small };

/// One thread's access. Every number in the image is checked before it is used; nothing of it decides how much memory
/// is taken beyond the caches' limits, apart from one listing and one file's list of blocks, which take as much as in
/// the file.
class ImageAccess {
 public:
  /// The descriptor is used as long as there are readers; not owned. ErrorKind::corrupt when the file is no squashfs
  /// 4.0, ErrorKind::unsupported when this build lacks its compressor.
  static Result<ImageAccess> open(int image_fd, ImageCaches caches = ImageCaches::usual);
  /// For one more thread: they share what has been decompressed.
  [[nodiscard]] Result<ImageAccess> another() const;
  ImageAccess(ImageAccess&&) noexcept;
  ImageAccess& operator=(ImageAccess&&) noexcept;
  ~ImageAccess();

  /// What the superblock says.
  [[nodiscard]] const ImageInfo& info() const;
  [[nodiscard]] InodeRef root() const;
  [[nodiscard]] bool has_attributes() const;
  Result<StoredInode> inode(InodeRef ref);
  /// The inode of the root, which is a directory.
  Result<StoredInode> top();
  Result<std::string> link_target(const StoredInode& link);
  Result<std::shared_ptr<const Listing>> list(const StoredInode& directory);
  /// Content from offset on, at most `size` bytes, less at the end of the file.
  Result<std::vector<Extent>> read(const StoredInode& file, uint64_t offset, size_t size);
  using Take = std::function<Result<void>(uint64_t, std::string_view)>;
  /// Calls take(offset, bytes) for the content between two offsets, in order, without holes. An error of take ends it.
  Result<void> read(const StoredInode& file, uint64_t begin, uint64_t end, const Take& take);
  /// Where the content of a file lies, for those who copy its blocks as they are. Not checked.
  Result<StoredFile> stored(const StoredInode& file);
  Result<std::vector<std::pair<std::string, std::string>>> attributes(const StoredInode& inode);
  /// The ids of owners and groups (StoredInode::owner, group).
  Result<std::vector<uint32_t>> owners();

 private:
  struct Block;
  struct Blocks;
  struct Shared;
  ImageAccess(std::shared_ptr<Shared> image, BlockDecompressor decompressor);
  static Result<ImageAccess> create(std::shared_ptr<Shared> image);
  Result<std::shared_ptr<const Block>> metadata_block(uint64_t at);
  /// `word`: its size as stored, with squashfs::kDataStored. out: one block's bytes; how many of them it has.
  Result<size_t> load_block(uint64_t at, uint32_t word, char* out);
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
  Result<std::shared_ptr<const Blocks>> blocks_of(const StoredInode& file);
  Result<Extent> block_extent(const Blocks& blocks, const StoredInode& file, uint64_t index);
  Result<squashfs::FragmentEntry> fragment_entry(uint32_t index);
  Result<Extent> fragment_extent(const StoredInode& file, size_t size);
  /// What is wanted once: in memory of this thread, which stays in its processor's cache, and not among the shared
  /// blocks. Good until the next call.
  Result<std::string_view> block_once(uint64_t start, uint32_t word, size_t expected);
  Result<std::string_view> tail_once(const StoredInode& file, size_t size);
  Result<MetadataPosition> table_entry(uint64_t table, uint64_t index, size_t entry_bytes);

  std::shared_ptr<Shared> image_;
  BlockDecompressor decompressor_;
  std::unique_ptr<char[]> raw_, once_, fragment_;  ///< a block each: as it is stored, block_once(), tail_once()
  uint32_t last_fragment_ = StoredInode::kNone;    ///< in fragment_
  size_t fragment_size_ = 0;
};

}  // namespace situla
