#include "hooks/unpack/image_access.hpp"

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>

#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "hooks/unpack/block_cache.hpp"
#include "hooks/unpack/bundle_trailer.hpp"
#include "hooks/unpack/squashfs_layout.hpp"

namespace situla {
namespace {

// In memory of the job that uses the image, so modest; what has been read stays in the kernel's page cache.
constexpr size_t kCacheBytes = size_t{24} << 20U;
constexpr size_t kListBytes = size_t{8} << 20U;
constexpr uint64_t kMostBlocks = uint64_t{1} << 24U;
constexpr uint64_t kMostNames = uint64_t{1} << 24U;
constexpr size_t kMaxTarget = 65535;
constexpr size_t kMaxValue = 65536;

Error damaged(std::string_view what) {
  return {ErrorKind::corrupt, "read image: " + std::string(what)};
}

Error no_image(const std::string& why) {
  return {ErrorKind::corrupt, "read superblock: " + why};
}

/// Where the end of a file, `size` bytes, is in the block that it shares.
Result<std::string_view> tail_of(const StoredInode& file, std::string_view fragment, size_t size) {
  if (file.fragment_offset > fragment.size() || size > fragment.size() - file.fragment_offset)
    return fail(damaged("a file lies outside of its fragment"));
  return fragment.substr(file.fragment_offset, size);
}

Result<size_t> read_at(int fd, uint64_t offset, char* out, size_t size) {
  size_t got = 0;
  while (got < size) {
    const ssize_t count = pread(fd, out + got, size - got, static_cast<off_t>(offset + got));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno(errno, "read image");
    if (count == 0) break;
    got += static_cast<size_t>(count);
  }
  return got;
}

}  // namespace

const StoredName* find_name(const Listing& names, std::string_view name) {
  const auto found = std::lower_bound(names.begin(), names.end(), name,
                                      [](const StoredName& a, std::string_view b) { return a.name < b; });
  return found != names.end() && found->name == name ? &*found : nullptr;
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
  int fd = -1;
  ImageInfo info;
  squashfs::Superblock super{};
  squashfs::AttributeTable attributes{};
  BlockCache<Block> blocks{kCacheBytes};
  BlockCache<Blocks> files{kListBytes};
  BlockCache<Listing> listings{kListBytes};

  Result<void> load(int image_fd) {
    fd = image_fd;
    struct stat status {};
    if (fstat(fd, &status) != 0) return fail_errno(errno, "inspect image");
    if (S_ISDIR(status.st_mode)) return fail_errno(EISDIR, "read superblock");
    const off_t end = S_ISBLK(status.st_mode) ? lseek(fd, 0, SEEK_END) : status.st_size;
    auto file_bytes = static_cast<uint64_t>(std::max<off_t>(end, 0));
    if (const auto bundle = BundleTrailer::read(fd, file_bytes)) {
      info.offset = bundle->image_offset;
      file_bytes = bundle->image_bytes;
    }
    TRY_ASSIGN(const size_t got, read_at(fd, info.offset, reinterpret_cast<char*>(&super), sizeof super));
    if (got != sizeof super || super.magic != squashfs::kMagic) return fail(no_image("not a squashfs file"));
    if (super.major != 4 || super.minor != 0) return fail(no_image("not squashfs version 4.0"));
    if (super.bytes_used > file_bytes)
      return fail(no_image("the image is truncated: " + std::to_string(file_bytes) + " of " +
                           std::to_string(super.bytes_used) + " bytes"));
    if (super.block_bytes < 4096 || super.block_bytes > 1U << 20U || (super.block_bytes & (super.block_bytes - 1)) != 0)
      return fail(no_image("impossible block size"));
    info.compressor = BlockDecompressor::name(super.compressor);
    info.block_size = super.block_bytes;
    info.inodes = super.inode_count;
    info.bytes_used = super.bytes_used;
    info.modification_time = super.modification_time;
    if (super.attribute_table == squashfs::kNoTable) return {};
    TRY_ASSIGN(const size_t table, read_at(fd, info.offset + super.attribute_table,
                                           reinterpret_cast<char*>(&attributes), sizeof attributes));
    if (table != sizeof attributes) return fail(damaged("the table of attributes is not there"));
    return {};
  }
};

ImageAccess::ImageAccess(std::shared_ptr<Shared> image, BlockDecompressor decompressor)
    : image_(std::move(image)), decompressor_(std::move(decompressor)) {}
ImageAccess::ImageAccess(ImageAccess&&) noexcept = default;
ImageAccess& ImageAccess::operator=(ImageAccess&&) noexcept = default;
ImageAccess::~ImageAccess() = default;

Result<ImageAccess> ImageAccess::open(int image_fd) {
  auto image = std::make_shared<Shared>();
  TRY(image->load(image_fd));
  return create(std::move(image));
}

Result<ImageAccess> ImageAccess::create(std::shared_ptr<Shared> image) {
  TRY_ASSIGN(BlockDecompressor decompressor,
             BlockDecompressor::create(image->super.compressor, image->super.block_bytes));
  return ImageAccess(std::move(image), std::move(decompressor));
}

Result<ImageAccess> ImageAccess::another() const {
  return create(image_);
}

const ImageInfo& ImageAccess::info() const {
  return image_->info;
}
InodeRef ImageAccess::root() const {
  return image_->super.root;
}
bool ImageAccess::has_attributes() const {
  return image_->super.attribute_table != squashfs::kNoTable && image_->attributes.count > 0;
}

Result<std::shared_ptr<const ImageAccess::Block>> ImageAccess::metadata_block(uint64_t at) {
  using Loaded = std::pair<std::shared_ptr<const Block>, size_t>;
  return image_->blocks.get(at, [&]() -> Result<Loaded> {
    if (at >= image_->super.bytes_used) return fail(damaged("metadata outside of the file"));
    std::array<char, sizeof(uint16_t) + squashfs::kMetadataBytes> raw{};
    TRY_ASSIGN(const size_t got, read_at(image_->fd, image_->info.offset + at, raw.data(), raw.size()));
    uint16_t header = 0;
    if (got >= sizeof header) std::memcpy(&header, raw.data(), sizeof header);
    const size_t stored = header & ~squashfs::kMetadataStored;
    if (stored == 0 || stored > squashfs::kMetadataBytes || sizeof header + stored > got)
      return fail(damaged("a block of metadata has an impossible size"));
    auto block = std::make_shared<Block>();
    block->next = at + sizeof header + stored;
    block->bytes = std::make_unique_for_overwrite<char[]>(squashfs::kMetadataBytes);
    if ((header & squashfs::kMetadataStored) != 0) {
      std::memcpy(block->bytes.get(), raw.data() + sizeof header, stored);
      block->size = stored;
    } else {
      TRY_ASSIGN(block->size, decompressor_.decompress({raw.data() + sizeof header, stored}, block->bytes.get(),
                                                       squashfs::kMetadataBytes));
    }
    return Loaded{std::move(block), squashfs::kMetadataBytes};
  });
}

Result<size_t> ImageAccess::load_block(uint64_t at, uint32_t word, char* out) {
  const size_t stored = word & (squashfs::kDataStored - 1);
  const size_t block_bytes = image_->super.block_bytes;
  if (stored > block_bytes || at > image_->super.bytes_used || stored > image_->super.bytes_used - at)
    return fail(damaged("a block outside of the file"));
  const bool compressed = (word & squashfs::kDataStored) == 0;
  if (compressed && !raw_) raw_ = std::make_unique_for_overwrite<char[]>(block_bytes);
  char* into = compressed ? raw_.get() : out;
  TRY_ASSIGN(const size_t got, read_at(image_->fd, image_->info.offset + at, into, stored));
  if (got != stored) return fail(damaged("the file has become shorter"));
  return compressed ? decompressor_.decompress({into, stored}, out, block_bytes) : got;
}

Result<std::shared_ptr<const ImageAccess::Block>> ImageAccess::data_block(uint64_t at, uint32_t word) {
  using Loaded = std::pair<std::shared_ptr<const Block>, size_t>;
  return image_->blocks.get(at, [&]() -> Result<Loaded> {
    const size_t block_bytes = image_->super.block_bytes;
    auto block = std::make_shared<Block>();
    block->bytes = std::make_unique_for_overwrite<char[]>(block_bytes);
    TRY_ASSIGN(block->size, load_block(at, word, block->bytes.get()));
    return Loaded{std::move(block), block_bytes};
  });
}

Result<void> ImageAccess::read_metadata(MetadataPosition& at, void* out, size_t size) {
  auto* bytes = static_cast<char*>(out);
  while (size > 0) {
    TRY_ASSIGN(const std::shared_ptr<const Block> block, metadata_block(at.block));
    if (at.offset > block->size) return fail(damaged("metadata end too soon"));
    const size_t part = std::min(size, block->size - at.offset);
    std::memcpy(bytes, block->bytes.get() + at.offset, part);
    bytes += part;
    size -= part;
    at.offset += static_cast<uint32_t>(part);
    if (at.offset < block->size) continue;
    at = {block->next, 0};
  }
  return {};
}

template <typename Fields>
Result<Fields> ImageAccess::read_fields(MetadataPosition& at) {
  Fields fields{};
  TRY(read_metadata(at, &fields, sizeof fields));
  return fields;
}

template <typename Fields>
Result<void> ImageAccess::read_directory(MetadataPosition& at, StoredInode& inode) {
  TRY_ASSIGN(const Fields fields, read_fields<Fields>(at));
  inode.listing = {image_->super.directory_table + fields.block, fields.offset};
  inode.size = fields.size;
  inode.links = fields.links;
  if constexpr (requires { fields.attributes; }) inode.attributes = fields.attributes;
  return {};
}

template <typename Fields>
Result<void> ImageAccess::read_file(MetadataPosition& at, StoredInode& inode) {
  TRY_ASSIGN(const Fields fields, read_fields<Fields>(at));
  inode.start = fields.start;
  inode.size = fields.size;
  if constexpr (requires { fields.sparse; }) inode.sparse = fields.sparse;
  inode.fragment = fields.fragment;
  inode.fragment_offset = fields.fragment_offset;
  if constexpr (requires { fields.attributes; }) {
    inode.links = fields.links;
    inode.attributes = fields.attributes;
  }
  return {};
}

/// Devices, fifos and sockets; the attributes of long ones follow.
template <typename Fields>
Result<void> ImageAccess::read_special(MetadataPosition& at, bool is_long, StoredInode& inode) {
  TRY_ASSIGN(const Fields fields, read_fields<Fields>(at));
  inode.links = fields.links;
  if constexpr (requires { fields.device; }) inode.device = fields.device;
  if (is_long) {
    TRY_ASSIGN(inode.attributes, read_fields<uint32_t>(at));
  }
  return {};
}

/// Leaves `at` where the target begins; the attributes of long ones follow it.
Result<void> ImageAccess::read_link(MetadataPosition& at, bool is_long, StoredInode& inode) {
  TRY_ASSIGN(const auto fields, read_fields<squashfs::LinkInode>(at));
  inode.links = fields.links;
  inode.size = fields.size;
  if (inode.size == 0 || inode.size > kMaxTarget) return fail(damaged("a link with an impossible target"));
  if (!is_long) return {};
  MetadataPosition end = at;
  std::string target(inode.size, '\0');
  TRY(read_metadata(end, target.data(), target.size()));
  TRY_ASSIGN(inode.attributes, read_fields<uint32_t>(end));
  return {};
}

Result<StoredInode> ImageAccess::inode(InodeRef ref) {
  MetadataPosition at{image_->super.inode_table + (ref >> 16U), static_cast<uint32_t>(ref & 0xFFFFU)};
  TRY_ASSIGN(const auto header, read_fields<squashfs::InodeHeader>(at));
  constexpr std::array<uint32_t, 8> kTypes = {0, S_IFDIR, S_IFREG, S_IFLNK, S_IFBLK, S_IFCHR, S_IFIFO, S_IFSOCK};
  const bool is_long = header.type > 7;
  const unsigned type = is_long ? header.type - 7U : header.type;
  if (type == 0 || type > 7) return fail(damaged("an inode of unknown type"));
  StoredInode inode;
  inode.ref = ref;
  inode.modification_time = header.modification_time;
  inode.number = header.number;
  inode.mode = kTypes[type] | (header.mode & 07777U);
  if (S_ISDIR(inode.mode))
    TRY(is_long ? read_directory<squashfs::LongDirectoryInode>(at, inode)
                : read_directory<squashfs::DirectoryInode>(at, inode));
  else if (S_ISREG(inode.mode))
    TRY(is_long ? read_file<squashfs::LongFileInode>(at, inode) : read_file<squashfs::FileInode>(at, inode));
  else if (S_ISLNK(inode.mode))
    TRY(read_link(at, is_long, inode));
  else if (S_ISBLK(inode.mode) || S_ISCHR(inode.mode))
    TRY(read_special<squashfs::DeviceInode>(at, is_long, inode));
  else
    TRY(read_special<squashfs::IpcInode>(at, is_long, inode));
  inode.rest = at;
  return inode;
}

Result<StoredInode> ImageAccess::top() {
  TRY_ASSIGN(const StoredInode root, inode(image_->super.root));
  if (!S_ISDIR(root.mode)) return fail(ErrorKind::corrupt, "read root directory: it is not a directory");
  return root;
}

Result<std::string> ImageAccess::link_target(const StoredInode& link) {
  std::string target(std::min<uint64_t>(link.size, kMaxTarget), '\0');
  MetadataPosition at = link.rest;
  TRY(read_metadata(at, target.data(), target.size()));
  if (target.find('\0') != std::string::npos) return fail(damaged("a link with an impossible target"));
  return target;
}

Result<std::shared_ptr<const Listing>> ImageAccess::list(const StoredInode& directory) {
  using Loaded = std::pair<std::shared_ptr<const Listing>, size_t>;
  return image_->listings.get(directory.ref, [&]() -> Result<Loaded> {
    auto names = std::make_shared<Listing>();
    // "." and "..", which are not stored, count for three bytes.
    uint64_t left = directory.size > 3 ? directory.size - 3 : 0;
    MetadataPosition at = directory.listing;
    size_t bytes = 0;
    while (left > 0) {
      squashfs::DirectoryHeader header{};
      if (left < sizeof header) return fail(damaged("a directory ends too soon"));
      TRY(read_metadata(at, &header, sizeof header));
      left -= sizeof header;
      if (header.count > 255 || names->size() > kMostNames) return fail(damaged("a directory with too many names"));
      for (uint32_t i = 0; i <= header.count; ++i) {
        squashfs::DirectoryEntry entry{};
        TRY(read_metadata(at, &entry, sizeof entry));
        std::string name(size_t{entry.size} + 1, '\0');
        if (name.size() > size_t{NAME_MAX} + 1 || left < sizeof entry + name.size())
          return fail(damaged("a directory ends too soon"));
        TRY(read_metadata(at, name.data(), name.size()));
        left -= sizeof entry + name.size();
        if (name == "." || name == ".." || name.size() > size_t{NAME_MAX} || name.find('/') != std::string::npos ||
            name.find('\0') != std::string::npos)
          return fail(ErrorKind::corrupt,
                      "read directory: impossible name \"" + printable(name.substr(0, size_t{NAME_MAX})) + "\"");
        bytes += sizeof(StoredName) + name.size();
        names->push_back({std::move(name), uint64_t{header.block} << 16U | entry.offset,
                          header.number + static_cast<uint32_t>(entry.number), entry.type});
      }
    }
    std::sort(names->begin(), names->end(), [](const StoredName& a, const StoredName& b) { return a.name < b.name; });
    return Loaded{std::move(names), bytes};
  });
}

Result<std::shared_ptr<const ImageAccess::Blocks>> ImageAccess::blocks_of(const StoredInode& file) {
  using Loaded = std::pair<std::shared_ptr<const Blocks>, size_t>;
  static const auto kNoBlocks = std::make_shared<const Blocks>();
  const uint64_t block_bytes = image_->super.block_bytes;
  const bool ends_in_fragment = file.fragment != StoredInode::kNone;
  const uint64_t count = file.size / block_bytes + (!ends_in_fragment && file.size % block_bytes != 0 ? 1 : 0);
  if (count == 0) return kNoBlocks;  // most files
  return image_->files.get(file.ref, [&]() -> Result<Loaded> {
    if (count > kMostBlocks) return fail(damaged("a file with too many blocks"));
    auto blocks = std::make_shared<Blocks>();
    MetadataPosition at = file.rest;
    uint64_t start = file.start;
    std::array<uint32_t, 1024> words{};
    for (uint64_t done = 0; done < count;) {
      const size_t part = std::min<uint64_t>(words.size(), count - done);
      TRY(read_metadata(at, words.data(), part * sizeof(uint32_t)));
      for (size_t i = 0; i < part; ++i) {
        blocks->starts.push_back(start);
        blocks->words.push_back(words[i]);
        start += words[i] & (squashfs::kDataStored - 1);
      }
      done += part;
    }
    return Loaded{std::move(blocks), static_cast<size_t>(count) * (sizeof(uint64_t) + sizeof(uint32_t)) + 128};
  });
}

Result<Extent> ImageAccess::block_extent(const Blocks& blocks, const StoredInode& file, uint64_t index) {
  const uint64_t block_bytes = image_->super.block_bytes;
  const size_t expected = std::min(block_bytes, file.size - index * block_bytes);
  const uint32_t word = blocks.words[index];
  if (word == 0) return Extent{nullptr, nullptr, expected};
  TRY_ASSIGN(const std::shared_ptr<const Block> block, data_block(blocks.starts[index], word));
  if (block->size < expected) return fail(damaged("a block is too short"));
  const char* bytes = block->bytes.get();
  return Extent{block, bytes, expected};
}

Result<MetadataPosition> ImageAccess::table_entry(uint64_t table, uint64_t index, size_t entry_bytes) {
  const uint64_t per_block = squashfs::kMetadataBytes / entry_bytes;
  uint64_t block = 0;
  TRY_ASSIGN(const size_t got, read_at(image_->fd, image_->info.offset + table + index / per_block * sizeof block,
                                       reinterpret_cast<char*>(&block), sizeof block));
  if (got != sizeof block) return fail(damaged("a table is not there"));
  return MetadataPosition{block, static_cast<uint32_t>(index % per_block * entry_bytes)};
}

Result<squashfs::FragmentEntry> ImageAccess::fragment_entry(uint32_t index) {
  if (index >= image_->super.fragment_count) return fail(damaged("a fragment that is not there"));
  squashfs::FragmentEntry entry{};
  TRY_ASSIGN(MetadataPosition at, table_entry(image_->super.fragment_table, index, sizeof entry));
  TRY(read_metadata(at, &entry, sizeof entry));
  return entry;
}

/// The end of a file, or all of a small one, in a block that it shares.
Result<Extent> ImageAccess::fragment_extent(const StoredInode& file, size_t size) {
  TRY_ASSIGN(const squashfs::FragmentEntry entry, fragment_entry(file.fragment));
  TRY_ASSIGN(const std::shared_ptr<const Block> block, data_block(entry.start, entry.size));
  TRY_ASSIGN(const std::string_view bytes, tail_of(file, {block->bytes.get(), block->size}, size));
  return Extent{block, bytes.data(), bytes.size()};
}

Result<std::vector<Extent>> ImageAccess::read(const StoredInode& file, uint64_t offset, size_t size) {
  std::vector<Extent> extents;
  if (offset >= file.size) return extents;
  uint64_t left = std::min<uint64_t>(size, file.size - offset);
  const uint64_t block_bytes = image_->super.block_bytes;
  TRY_ASSIGN(const std::shared_ptr<const Blocks> blocks, blocks_of(file));
  while (left > 0) {
    const uint64_t index = offset / block_bytes;
    const uint64_t skip = offset % block_bytes;
    const bool in_block = index < blocks->words.size();
    auto found = in_block ? block_extent(*blocks, file, index)
                          : fragment_extent(file, static_cast<size_t>(file.size % block_bytes));
    if (!found)
      return fail(std::move(found).error().with_context(in_block ? "read data block " + std::to_string(index)
                                                                 : "read fragment"));
    Extent& extent = *found;
    if (extent.size <= skip) return fail(damaged("a file is shorter than it says"));
    if (extent.bytes != nullptr) extent.bytes += skip;
    extent.size = static_cast<size_t>(std::min<uint64_t>(extent.size - skip, left));
    offset += extent.size;
    left -= extent.size;
    extents.push_back(std::move(extent));
  }
  return extents;
}

Result<std::string_view> ImageAccess::block_once(uint64_t start, uint32_t word, size_t expected) {
  if (!once_) once_ = std::make_unique_for_overwrite<char[]>(image_->super.block_bytes);
  TRY_ASSIGN(const size_t size, load_block(start, word, once_.get()));
  if (size < expected) return fail(damaged("a block is too short"));
  return std::string_view(once_.get(), expected);
}

Result<std::string_view> ImageAccess::tail_once(const StoredInode& file, size_t size) {
  if (!fragment_ || last_fragment_ != file.fragment) {
    if (!fragment_) fragment_ = std::make_unique_for_overwrite<char[]>(image_->super.block_bytes);
    last_fragment_ = StoredInode::kNone;
    TRY_ASSIGN(const squashfs::FragmentEntry entry, fragment_entry(file.fragment));
    TRY_ASSIGN(fragment_size_, load_block(entry.start, entry.size, fragment_.get()));
    last_fragment_ = file.fragment;
  }
  return tail_of(file, {fragment_.get(), fragment_size_}, size);
}

Result<void> ImageAccess::read(const StoredInode& file, uint64_t begin, uint64_t end, const Take& take) {
  if (begin >= end) return {};
  if (end > file.size) return fail(damaged("a file is shorter than it says"));
  const uint64_t block_bytes = image_->super.block_bytes;
  TRY_ASSIGN(const std::shared_ptr<const Blocks> blocks, blocks_of(file));
  for (uint64_t at = begin; at < end;) {
    const uint64_t index = at / block_bytes;
    const uint64_t skip = at % block_bytes;
    const size_t whole = std::min(block_bytes, file.size - index * block_bytes);
    const size_t part = std::min<uint64_t>(whole - skip, end - at);
    const bool in_block = index < blocks->words.size();
    if (!in_block || blocks->words[index] != 0) {
      const auto bytes =
          in_block ? block_once(blocks->starts[index], blocks->words[index], whole) : tail_once(file, whole);
      if (!bytes)
        return fail(
            Error(bytes.error()).with_context(in_block ? "read data block " + std::to_string(index) : "read fragment"));
      TRY(take(at, bytes->substr(skip, part)));
    }
    at += part;
  }
  return {};
}

Result<StoredFile> ImageAccess::stored(const StoredInode& file) {
  TRY_ASSIGN(const std::shared_ptr<const Blocks> blocks, blocks_of(file));
  return StoredFile{file.start, file.size, file.sparse, file.fragment, file.fragment_offset, {}, {}, blocks->words};
}

Result<std::optional<uint32_t>> ImageAccess::only_owner() {
  if (image_->super.id_count != 1) return std::nullopt;
  TRY_ASSIGN(MetadataPosition at, table_entry(image_->super.id_table, 0, sizeof(uint32_t)));
  TRY_ASSIGN(const uint32_t owner, read_fields<uint32_t>(at));
  return owner;
}

Result<std::vector<std::pair<std::string, std::string>>> ImageAccess::attributes(const StoredInode& inode) {
  std::vector<std::pair<std::string, std::string>> all;
  if (inode.attributes == StoredInode::kNone || !has_attributes()) return all;
  if (inode.attributes >= image_->attributes.count) return fail(damaged("attributes that are not there"));
  squashfs::AttributeEntry entry{};
  TRY_ASSIGN(MetadataPosition where, table_entry(image_->super.attribute_table + sizeof(squashfs::AttributeTable),
                                                 inode.attributes, sizeof entry));
  TRY(read_metadata(where, &entry, sizeof entry));
  const auto position = [&](uint64_t packed) {
    return MetadataPosition{image_->attributes.start + (packed >> 16U), static_cast<uint32_t>(packed & 0xFFFFU)};
  };
  constexpr std::array<std::string_view, 3> kPrefixes = {"user.", "trusted.", "security."};
  MetadataPosition at = position(entry.position);
  for (uint32_t i = 0; i < entry.count; ++i) {
    squashfs::AttributeKey key{};
    TRY(read_metadata(at, &key, sizeof key));
    const size_t prefix = key.type & 0xFFU;
    if (prefix >= kPrefixes.size() || key.size > size_t{NAME_MAX}) return fail(damaged("an impossible attribute"));
    std::string name(key.size, '\0');
    TRY(read_metadata(at, name.data(), name.size()));
    uint32_t size = 0;
    TRY(read_metadata(at, &size, sizeof size));
    MetadataPosition elsewhere;
    MetadataPosition* value_at = &at;
    if ((key.type & squashfs::kExternalValue) != 0) {
      uint64_t packed = 0;
      TRY(read_metadata(at, &packed, sizeof packed));
      elsewhere = position(packed);
      value_at = &elsewhere;
      TRY(read_metadata(elsewhere, &size, sizeof size));
    }
    if (size > kMaxValue) return fail(damaged("an attribute that is too large"));
    std::string value(size, '\0');
    TRY(read_metadata(*value_at, value.data(), value.size()));
    all.emplace_back(std::string(kPrefixes[prefix]) + name, std::move(value));
  }
  return all;
}

}  // namespace situla
