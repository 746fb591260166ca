#include <algorithm>
#include <array>
#include <climits>
#include <cstring>

#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "hooks/unpack/bundle_trailer.hpp"
#include "hooks/unpack/image_parts.hpp"
#include "hooks/unpack/sif_partition.hpp"

namespace situla {
namespace {

constexpr uint64_t kMostNames = uint64_t{1} << 24U;
constexpr size_t kMaxTarget = 65535;
constexpr size_t kMaxValue = 65536;
constexpr size_t kMostAttributeBytes = size_t{4} << 20U;  // of one inode: values may lie at one place, however many

Error no_image(const std::string& why) {
  return {ErrorKind::corrupt, "read superblock: " + why};
}

}  // namespace

const StoredName* find_name(const Listing& names, std::string_view name) {
  const auto found = std::lower_bound(names.begin(), names.end(), name,
                                      [](const StoredName& a, std::string_view b) { return a.name < b; });
  return found != names.end() && found->name == name ? &*found : nullptr;
}

Result<void> ImageAccess::Shared::load(int image_fd) {
  fd = image_fd;
  struct stat status {};
  if (fstat(fd, &status) != 0) return fail_errno(errno, "inspect image");
  if (S_ISDIR(status.st_mode))
    return fail(Error::from_errno(EISDIR, "read superblock").with_code(ErrorCode::image_file));
  const off_t end = S_ISBLK(status.st_mode) ? lseek(fd, 0, SEEK_END) : status.st_size;
  auto file_bytes = static_cast<uint64_t>(std::max<off_t>(end, 0));
  if (const auto bundle = BundleTrailer::read(fd, file_bytes)) {
    info.offset = bundle->image_offset;
    file_bytes = bundle->image_bytes;
  }
  TRY_ASSIGN(const auto sif, SifPartition::find(fd, file_bytes));
  if (sif) {
    info.offset = sif->offset;
    file_bytes = sif->bytes;
  }
  TRY_ASSIGN(const size_t got, read(0, reinterpret_cast<char*>(&super), sizeof super));
  if (got != sizeof super || super.magic != squashfs::kMagic)
    return fail(no_image("not a squashfs file").with_code(ErrorCode::image_file));
  if (super.major != 4 || super.minor != 0)
    return fail(no_image("not squashfs version 4.0").with_code(ErrorCode::image_file));
  if (super.bytes_used > file_bytes)
    return fail(no_image("the image is truncated: " + std::to_string(file_bytes) + " of " +
                         std::to_string(super.bytes_used) + " bytes")
                    .with_code(ErrorCode::image_damaged));
  if (super.block_bytes < 4096 || super.block_bytes > 1U << 20U || (super.block_bytes & (super.block_bytes - 1)) != 0)
    return fail(no_image("impossible block size").with_code(ErrorCode::image_damaged));
  info.compressor = BlockDecompressor::name(super.compressor);
  info.block_size = super.block_bytes;
  info.inodes = super.inode_count;
  info.bytes_used = super.bytes_used;
  info.modification_time = super.modification_time;
  if (super.attribute_table == squashfs::kNoTable) return {};
  TRY_ASSIGN(const size_t table, read(super.attribute_table, reinterpret_cast<char*>(&attributes), sizeof attributes));
  if (table != sizeof attributes) return fail(damaged_image("the table of attributes is not there"));
  return {};
}

Result<size_t> ImageAccess::Shared::read(uint64_t offset, char* out, size_t size) const {
  size_t got = 0;
  while (got < size) {
    const ssize_t count = pread(fd, out + got, size - got, static_cast<off_t>(info.offset + offset + got));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno(errno, "read image");
    if (count == 0) break;
    got += static_cast<size_t>(count);
  }
  return got;
}

ImageAccess::ImageAccess(std::shared_ptr<Shared> image, BlockDecompressor decompressor)
    : image_(std::move(image)), decompressor_(std::move(decompressor)) {}
ImageAccess::ImageAccess(ImageAccess&&) noexcept = default;
ImageAccess& ImageAccess::operator=(ImageAccess&&) noexcept = default;
ImageAccess::~ImageAccess() = default;

Result<ImageAccess> ImageAccess::open(int image_fd, ImageCaches caches) {
  auto image = std::make_shared<Shared>(caches == ImageCaches::usual ? 1 : 16);
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
  if (at >= image_->super.bytes_used) return fail(damaged_image("metadata outside of the file"));
  return image_->blocks.get(Shared::metadata_key(at), [&]() -> Result<Loaded> {
    std::array<char, sizeof(uint16_t) + squashfs::kMetadataBytes> raw{};
    TRY_ASSIGN(const size_t got, image_->read(at, raw.data(), raw.size()));
    uint16_t header = 0;
    if (got >= sizeof header) std::memcpy(&header, raw.data(), sizeof header);
    const size_t stored = header & ~squashfs::kMetadataStored;
    if (stored == 0 || stored > squashfs::kMetadataBytes || sizeof header + stored > got)
      return fail(damaged_image("a block of metadata has an impossible size"));
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

Result<void> ImageAccess::read_metadata(MetadataPosition& at, void* out, size_t size) {
  auto* bytes = static_cast<char*>(out);
  while (size > 0) {
    TRY_ASSIGN(const std::shared_ptr<const Block> block, metadata_block(at.block));
    if (at.offset > block->size) return fail(damaged_image("metadata end too soon"));
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
  if (inode.size == 0 || inode.size > kMaxTarget) return fail(damaged_image("a link with an impossible target"));
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
  if (type == 0 || type > 7) return fail(damaged_image("an inode of unknown type"));
  StoredInode inode;
  inode.ref = ref;
  inode.modification_time = header.modification_time;
  inode.number = header.number;
  inode.owner = header.owner;
  inode.group = header.group;
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
  if (!S_ISDIR(root.mode))
    return fail(
        Error(ErrorKind::corrupt, "read root directory: it is not a directory").with_code(ErrorCode::image_damaged));
  return root;
}

Result<std::string> ImageAccess::link_target(const StoredInode& link) {
  std::string target(std::min<uint64_t>(link.size, kMaxTarget), '\0');
  MetadataPosition at = link.rest;
  TRY(read_metadata(at, target.data(), target.size()));
  if (target.find('\0') != std::string::npos) return fail(damaged_image("a link with an impossible target"));
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
      if (left < sizeof header) return fail(damaged_image("a directory ends too soon"));
      TRY(read_metadata(at, &header, sizeof header));
      left -= sizeof header;
      if (header.count > 255 || names->size() > kMostNames)
        return fail(damaged_image("a directory with too many names"));
      for (uint32_t i = 0; i <= header.count; ++i) {
        squashfs::DirectoryEntry entry{};
        TRY(read_metadata(at, &entry, sizeof entry));
        std::string name(size_t{entry.size} + 1, '\0');
        if (name.size() > size_t{NAME_MAX} + 1 || left < sizeof entry + name.size())
          return fail(damaged_image("a directory ends too soon"));
        TRY(read_metadata(at, name.data(), name.size()));
        left -= sizeof entry + name.size();
        if (name == "." || name == ".." || name.size() > size_t{NAME_MAX} || name.find('/') != std::string::npos ||
            name.find('\0') != std::string::npos)
          return fail(Error(ErrorKind::corrupt,
                            "read directory: impossible name \"" + printable(name.substr(0, size_t{NAME_MAX})) + "\"")
                          .with_code(ErrorCode::image_damaged));
        bytes += sizeof(StoredName) + name.size();
        names->push_back({std::move(name), uint64_t{header.block} << 16U | entry.offset,
                          header.number + static_cast<uint32_t>(entry.number), entry.type});
      }
    }
    std::sort(names->begin(), names->end(), [](const StoredName& a, const StoredName& b) { return a.name < b.name; });
    return Loaded{std::move(names), bytes};
  });
}

Result<MetadataPosition> ImageAccess::table_entry(uint64_t table, uint64_t index, size_t entry_bytes) {
  const uint64_t per_block = squashfs::kMetadataBytes / entry_bytes;
  uint64_t block = 0;
  TRY_ASSIGN(const size_t got,
             image_->read(table + index / per_block * sizeof block, reinterpret_cast<char*>(&block), sizeof block));
  if (got != sizeof block) return fail(damaged_image("a table is not there"));
  return MetadataPosition{block, static_cast<uint32_t>(index % per_block * entry_bytes)};
}

Result<std::vector<uint32_t>> ImageAccess::owners() {
  std::vector<uint32_t> ids;
  for (uint16_t i = 0; i < std::max<uint16_t>(image_->super.id_count, 1); ++i) {
    TRY_ASSIGN(MetadataPosition at, table_entry(image_->super.id_table, i, sizeof(uint32_t)));
    TRY_ASSIGN(const uint32_t id, read_fields<uint32_t>(at));
    ids.push_back(id);
  }
  return ids;
}

Result<std::vector<std::pair<std::string, std::string>>> ImageAccess::attributes(const StoredInode& inode) {
  std::vector<std::pair<std::string, std::string>> all;
  if (inode.attributes == StoredInode::kNone || !has_attributes()) return all;
  if (inode.attributes >= image_->attributes.count) return fail(damaged_image("attributes that are not there"));
  squashfs::AttributeEntry entry{};
  TRY_ASSIGN(MetadataPosition where, table_entry(image_->super.attribute_table + sizeof(squashfs::AttributeTable),
                                                 inode.attributes, sizeof entry));
  TRY(read_metadata(where, &entry, sizeof entry));
  const auto position = [&](uint64_t packed) {
    return MetadataPosition{image_->attributes.start + (packed >> 16U), static_cast<uint32_t>(packed & 0xFFFFU)};
  };
  constexpr std::array<std::string_view, 3> kPrefixes = {"user.", "trusted.", "security."};
  MetadataPosition at = position(entry.position);
  size_t bytes = 0;
  for (uint32_t i = 0; i < entry.count; ++i) {
    squashfs::AttributeKey key{};
    TRY(read_metadata(at, &key, sizeof key));
    const size_t prefix = key.type & 0xFFU;
    if (prefix >= kPrefixes.size() || key.size > size_t{NAME_MAX})
      return fail(damaged_image("an impossible attribute"));
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
    bytes += sizeof key + name.size() + size;
    if (size > kMaxValue || bytes > kMostAttributeBytes)
      return fail(damaged_image("an attribute that is too large, or too many of them"));
    std::string value(size, '\0');
    TRY(read_metadata(*value_at, value.data(), value.size()));
    all.emplace_back(std::string(kPrefixes[prefix]) + name, std::move(value));
  }
  return all;
}

}  // namespace situla
