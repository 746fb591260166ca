#include "hooks/unpack/squashfs_reader.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include <sys/stat.h>
#include <unistd.h>

#include <sqfs/compressor.h>
#include <sqfs/data_reader.h>
#include <sqfs/dir.h>
#include <sqfs/dir_reader.h>
#include <sqfs/error.h>
#include <sqfs/id_table.h>
#include <sqfs/inode.h>
#include <sqfs/io.h>
#include <sqfs/super.h>
#include <sqfs/xattr.h>
#include <sqfs/xattr_reader.h>

#include "common/base/text.hpp"
#include "hooks/unpack/bundle_trailer.hpp"
#include "hooks/unpack/lzo.hpp"

namespace situla {
namespace {

constexpr uint32_t kNoXattr = 0xffffffff;
constexpr uint32_t kNoFragment = 0xffffffff;

struct Destroy {
  void operator()(void* object) const { sqfs_destroy(object); }
};
template <typename T>
using Owned = std::unique_ptr<T, Destroy>;

struct Free {
  void operator()(void* memory) const { sqfs_free(memory); }
};
template <typename T>
using Memory = std::unique_ptr<T, Free>;

tl::unexpected<Error> library_error(int code, const std::string& what) {
  const auto corrupt = [&](const char* reason) { return fail(ErrorKind::corrupt, what + ": " + reason); };
  switch (code) {
    case SQFS_ERROR_ALLOC:
      return fail_errno(ENOMEM, what);
    case SQFS_ERROR_IO:
      return fail_errno(errno != 0 ? errno : EIO, what);
    case SQFS_ERROR_COMPRESSOR:
      return corrupt("compressed data are damaged");
    case SQFS_ERROR_UNSUPPORTED:
      return fail(ErrorKind::unsupported, what + ": uses a feature that this build lacks");
    case SQFS_ERROR_OVERFLOW:
    case SQFS_ERROR_OUT_OF_BOUNDS:
      return corrupt("points outside of the image; is the file truncated?");
    case SFQS_ERROR_SUPER_MAGIC:
      return corrupt("not a squashfs file");
    case SFQS_ERROR_SUPER_VERSION:
      return corrupt("not squashfs version 4.0");
    case SQFS_ERROR_SUPER_BLOCK_SIZE:
      return corrupt("impossible block size");
    case SQFS_ERROR_NOT_DIR:
      return fail_errno(ENOTDIR, what);
    case SQFS_ERROR_NO_ENTRY:
      return fail_errno(ENOENT, what);
    default:
      return corrupt("the image is damaged");
  }
}

/// libsquashfs reads through this; the descriptor stays the caller's.
struct ImageFile {
  sqfs_file_t base{};  // first member: the library hands back a pointer to it
  int fd = -1;
  uint64_t offset = 0;  ///< of the image in the file
  uint64_t size = 0;
};

int read_at(sqfs_file_t* file, sqfs_u64 offset, void* buffer, size_t size) {
  const auto* image = reinterpret_cast<const ImageFile*>(file);
  auto* out = static_cast<char*>(buffer);
  while (size > 0) {
    if (offset > image->size) return SQFS_ERROR_OUT_OF_BOUNDS;
    const ssize_t count = pread(image->fd, out, size, static_cast<off_t>(image->offset + offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return SQFS_ERROR_IO;
    if (count == 0) return SQFS_ERROR_OUT_OF_BOUNDS;
    out += count;
    offset += static_cast<uint64_t>(count);
    size -= static_cast<size_t>(count);
  }
  return 0;
}

int refuse_write(sqfs_file_t*, sqfs_u64, const void*, size_t) {
  return SQFS_ERROR_IO;
}
int refuse_truncate(sqfs_file_t*, sqfs_u64) {
  return SQFS_ERROR_IO;
}
sqfs_u64 get_size(const sqfs_file_t* file) {
  return reinterpret_cast<const ImageFile*>(file)->size;
}

/// The library's interface for a compressor, over our decoder. It has no state, so one object's functions serve all.
struct LzoDecompressor {
  sqfs_compressor_t base{};  // first member, as above
  uint32_t block_size = 0;
};

void destroy_lzo(sqfs_object_t* object) {
  delete reinterpret_cast<LzoDecompressor*>(object);
}
sqfs_object_t* copy_lzo(const sqfs_object_t* object) {
  return reinterpret_cast<sqfs_object_t*>(new LzoDecompressor(*reinterpret_cast<const LzoDecompressor*>(object)));
}
void lzo_configuration(const sqfs_compressor_t* compressor, sqfs_compressor_config_t* config) {
  *config = {};
  config->id = SQFS_COMP_LZO;
  config->flags = SQFS_COMP_FLAG_UNCOMPRESS;
  config->block_size = reinterpret_cast<const LzoDecompressor*>(compressor)->block_size;
}
int no_options(sqfs_compressor_t*, sqfs_file_t*) {
  return 0;
}  // variant and level matter to the writer only
sqfs_s32 lzo_block(sqfs_compressor_t*, const sqfs_u8* in, sqfs_u32 size, sqfs_u8* out, sqfs_u32 capacity) {
  const auto decoded = lzo_decode(in, size, out, capacity);
  return decoded ? static_cast<sqfs_s32>(*decoded) : SQFS_ERROR_COMPRESSOR;
}

sqfs_compressor_t* make_lzo(uint32_t block_size) {
  auto* lzo = new LzoDecompressor;
  lzo->base.base.destroy = destroy_lzo;
  lzo->base.base.copy = copy_lzo;
  lzo->base.get_configuration = lzo_configuration;
  lzo->base.write_options = no_options;
  lzo->base.read_options = no_options;
  lzo->base.do_block = lzo_block;
  lzo->block_size = block_size;
  return &lzo->base;
}

const sqfs_inode_generic_t* inode_of(const ImageNode& node) {
  return static_cast<const sqfs_inode_generic_t*>(node.handle.get());
}

uint32_t link_count(const sqfs_inode_generic_t& inode) {
  switch (inode.base.type) {
    case SQFS_INODE_EXT_FILE:
      return inode.data.file_ext.nlink;
    case SQFS_INODE_SLINK:
      return inode.data.slink.nlink;
    case SQFS_INODE_EXT_SLINK:
      return inode.data.slink_ext.nlink;
    case SQFS_INODE_FIFO:
      return inode.data.ipc.nlink;
    case SQFS_INODE_EXT_FIFO:
      return inode.data.ipc_ext.nlink;
    default:
      return 1;
  }
}

Result<NodeKind> kind_of(uint16_t type) {
  switch (type) {
    case SQFS_INODE_DIR:
    case SQFS_INODE_EXT_DIR:
      return NodeKind::directory;
    case SQFS_INODE_FILE:
    case SQFS_INODE_EXT_FILE:
      return NodeKind::file;
    case SQFS_INODE_SLINK:
    case SQFS_INODE_EXT_SLINK:
      return NodeKind::link;
    case SQFS_INODE_FIFO:
    case SQFS_INODE_EXT_FIFO:
      return NodeKind::fifo;
    case SQFS_INODE_SOCKET:
    case SQFS_INODE_EXT_SOCKET:
      return NodeKind::socket;
    case SQFS_INODE_BDEV:
    case SQFS_INODE_EXT_BDEV:
      return NodeKind::block_device;
    case SQFS_INODE_CDEV:
    case SQFS_INODE_EXT_CDEV:
      return NodeKind::character_device;
    default:
      return fail(ErrorKind::corrupt, "read inode: unknown type " + std::to_string(type));
  }
}

Result<ImageNode> make_node(Memory<sqfs_inode_generic_t> inode) {
  ImageNode node;
  TRY_ASSIGN(node.kind, kind_of(inode->base.type));
  node.mode = inode->base.mode & 07777U;
  node.modification_time = inode->base.mod_time;
  node.number = inode->base.inode_number;
  node.links = link_count(*inode);
  if (node.kind == NodeKind::file) {
    if (const int code = sqfs_inode_get_file_size(inode.get(), &node.size); code != 0)
      return library_error(code, "read inode");
    node.blocks = inode->payload_bytes_used / sizeof(sqfs_u32);
    uint32_t offset = 0;
    if (const int code = sqfs_inode_get_frag_location(inode.get(), &node.fragment, &offset); code != 0)
      return library_error(code, "read inode");
  }
  if (node.kind == NodeKind::link) {
    const auto* text = reinterpret_cast<const char*>(inode->extra);
    const size_t size =
        inode->base.type == SQFS_INODE_SLINK ? inode->data.slink.target_size : inode->data.slink_ext.target_size;
    node.target.assign(text, size);
    if (size == 0 || node.target.find('\0') != std::string::npos)
      return fail(ErrorKind::corrupt, "read inode: a link with an impossible target");
  }
  node.handle =
      std::shared_ptr<const void>(inode.release(), [](const void* memory) { sqfs_free(const_cast<void*>(memory)); });
  return node;
}

Result<std::string> entry_name(const sqfs_dir_entry_t& entry) {
  std::string name(reinterpret_cast<const char*>(entry.name), size_t{entry.size} + 1);
  if (name == "." || name == ".." || name.size() > size_t{NAME_MAX} || name.find('/') != std::string::npos ||
      name.find('\0') != std::string::npos)
    return fail(ErrorKind::corrupt,
                "read directory: impossible name \"" + printable(name.substr(0, size_t{NAME_MAX})) + "\"");
  return name;
}

}  // namespace

struct SquashfsReader::State {
  ImageFile file;
  sqfs_super_t super{};
  ImageInfo info;
  Owned<sqfs_compressor_t> compressor;
  Owned<sqfs_id_table_t> ids;
  Owned<sqfs_dir_reader_t> directories;
  Owned<sqfs_data_reader_t> data;
  Owned<sqfs_xattr_reader_t> attributes;

  Result<void> load_super(int fd);
  Result<void> load_compressor();
  Result<void> load_tables();
};

Result<void> SquashfsReader::State::load_super(int fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return fail_errno(errno, "inspect image");
  file.base.read_at = read_at;
  file.base.write_at = refuse_write;
  file.base.get_size = get_size;
  file.base.truncate = refuse_truncate;
  file.fd = fd;
  const off_t end = S_ISBLK(status.st_mode) ? lseek(fd, 0, SEEK_END) : status.st_size;
  file.size = end < 0 ? 0 : static_cast<uint64_t>(end);
  if (S_ISDIR(status.st_mode)) return fail_errno(EISDIR, "read superblock");
  if (const auto bundle = BundleTrailer::read(fd, file.size)) {
    info.offset = file.offset = bundle->image_offset;
    file.size = bundle->image_bytes;
  }
  if (file.size < sizeof super) return fail(ErrorKind::corrupt, "read superblock: not a squashfs file");
  errno = 0;
  const int code = sqfs_super_read(&super, &file.base);
  if (code == SQFS_ERROR_UNSUPPORTED) {
    constexpr off_t kCompressorOffset = 20;
    uint8_t method = 0;
    (void)read_at(&file.base, kCompressorOffset, &method, 1);
    return fail(ErrorKind::unsupported,
                "read superblock: compressed with method " + std::to_string(method) + ", which this build cannot read");
  }
  if (code != 0) return library_error(code, "read superblock");
  if (super.bytes_used > file.size)
    return fail(ErrorKind::corrupt, "read superblock: the image is truncated: " + std::to_string(file.size) + " of " +
                                        std::to_string(super.bytes_used) + " bytes");
  // Every fragment takes at least one byte; the library would reserve memory for as many as are claimed.
  if (super.fragment_entry_count > super.bytes_used)
    return fail(ErrorKind::corrupt, "read superblock: more fragments than bytes");
  info.block_size = super.block_size;
  info.inodes = super.inode_count;
  info.bytes_used = super.bytes_used;
  info.modification_time = super.modification_time;
  return {};
}

Result<void> SquashfsReader::State::load_compressor() {
  const auto id = static_cast<SQFS_COMPRESSOR>(super.compression_id);
  const char* name = sqfs_compressor_name_from_id(id);
  info.compressor = name != nullptr ? name : "number " + std::to_string(super.compression_id);
  if (id == SQFS_COMP_LZO) {
    compressor.reset(make_lzo(super.block_size));
    return {};
  }
  sqfs_compressor_config_t config{};
  int code = sqfs_compressor_config_init(&config, id, super.block_size, SQFS_COMP_FLAG_UNCOMPRESS);
  sqfs_compressor_t* created = nullptr;
  if (code == 0) code = sqfs_compressor_create(&config, &created);
  if (code == SQFS_ERROR_UNSUPPORTED)
    return fail(Error(ErrorKind::unsupported,
                      "read image: compressed with " + info.compressor + ", which this build cannot read")
                    .with_hint("convert it: unsquashfs, then mksquashfs -comp zstd"));
  if (code != 0) return library_error(code, "read image");
  compressor.reset(created);
  if ((super.flags & SQFS_FLAG_COMPRESSOR_OPTIONS) != 0) {
    code = compressor->read_options(compressor.get(), &file.base);
    if (code != 0) return library_error(code, "read compressor options");
  }
  return {};
}

Result<void> SquashfsReader::State::load_tables() {
  ids.reset(sqfs_id_table_create(0));
  if (!ids) return fail_errno(ENOMEM, "read id table");
  if (const int code = sqfs_id_table_read(ids.get(), &file.base, &super, compressor.get()); code != 0)
    return library_error(code, "read id table");
  uint32_t owner = 0;
  if (super.id_count == 1 && sqfs_id_table_index_to_id(ids.get(), 0, &owner) == 0) info.only_owner = owner;

  directories.reset(sqfs_dir_reader_create(&super, compressor.get(), &file.base, 0));
  data.reset(sqfs_data_reader_create(&file.base, super.block_size, compressor.get(), 0));
  if (!directories || !data) return fail_errno(ENOMEM, "read image");
  if (const int code = sqfs_data_reader_load_fragment_table(data.get(), &super); code != 0)
    return library_error(code, "read fragment table");
  if ((super.flags & SQFS_FLAG_NO_XATTRS) != 0) return {};
  attributes.reset(sqfs_xattr_reader_create(0));
  if (!attributes) return fail_errno(ENOMEM, "read image");
  if (const int code = sqfs_xattr_reader_load(attributes.get(), &super, &file.base, compressor.get()); code != 0)
    return library_error(code, "read attribute table");
  return {};
}

SquashfsReader::SquashfsReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
SquashfsReader::SquashfsReader(SquashfsReader&&) noexcept = default;
SquashfsReader& SquashfsReader::operator=(SquashfsReader&&) noexcept = default;
SquashfsReader::~SquashfsReader() = default;

Result<SquashfsReader> SquashfsReader::open(int image_fd) {
  auto state = std::make_unique<State>();
  TRY(state->load_super(image_fd));
  TRY(state->load_compressor());
  TRY(state->load_tables());
  SquashfsReader reader(std::move(state));
  TRY_ASSIGN(const ImageNode root, reader.root());
  reader.state_->info.root_mode = root.mode;
  return reader;
}

const ImageInfo& SquashfsReader::info() const {
  return state_->info;
}

Result<ImageNode> SquashfsReader::root() {
  sqfs_inode_generic_t* inode = nullptr;
  if (const int code = sqfs_dir_reader_get_root_inode(state_->directories.get(), &inode); code != 0)
    return library_error(code, "read root directory");
  TRY_ASSIGN(ImageNode node, make_node(Memory<sqfs_inode_generic_t>(inode)));
  if (node.kind != NodeKind::directory) return fail(ErrorKind::corrupt, "read root directory: it is not a directory");
  return node;
}

Result<std::vector<ImageEntry>> SquashfsReader::list(const ImageNode& directory) {
  sqfs_dir_reader_t* reader = state_->directories.get();
  if (const int code = sqfs_dir_reader_open_dir(reader, inode_of(directory), 0); code != 0)
    return library_error(code, "read directory");
  std::vector<ImageEntry> entries;
  for (;;) {
    sqfs_dir_entry_t* raw = nullptr;
    const int code = sqfs_dir_reader_read(reader, &raw);
    const Memory<sqfs_dir_entry_t> entry(raw);
    if (code > 0) return entries;
    if (code < 0) return library_error(code, "read directory");
    TRY_ASSIGN(std::string name, entry_name(*entry));
    sqfs_inode_generic_t* inode = nullptr;
    if (const int got = sqfs_dir_reader_get_inode(reader, &inode); got != 0)
      return library_error(got, "read inode of " + printable(name));
    TRY_ASSIGN(ImageNode node, make_node(Memory<sqfs_inode_generic_t>(inode)));
    entries.push_back({std::move(name), std::move(node)});
  }
}

namespace {

Result<void> pass_on(const ImageNode& file, const SquashfsReader::Take& take, uint64_t offset, const sqfs_u8* bytes,
                     size_t size) {
  if (offset + size > file.size) return fail(ErrorKind::corrupt, "read data: more than the size of the file");
  return take(offset, std::string_view(reinterpret_cast<const char*>(bytes), size));
}

}  // namespace

Result<void> SquashfsReader::read(const ImageNode& file, const Take& take) {
  TRY(read_blocks(file, 0, file.blocks, take));
  return read_tail(file, take);
}

Result<void> SquashfsReader::read_blocks(const ImageNode& file, size_t first, size_t end, const Take& take) {
  const sqfs_inode_generic_t* inode = inode_of(file);
  for (size_t index = first; index < end; ++index) {
    if (inode->extra[index] == 0) continue;  // a hole
    size_t size = 0;
    sqfs_u8* raw = nullptr;
    errno = 0;
    const int code = sqfs_data_reader_get_block(state_->data.get(), inode, index, &size, &raw);
    const Memory<sqfs_u8> bytes(raw);
    if (code != 0) return library_error(code, "read data block " + std::to_string(index));
    TRY(pass_on(file, take, uint64_t{index} * state_->info.block_size, bytes.get(), size));
  }
  return {};
}

Result<void> SquashfsReader::read_tail(const ImageNode& file, const Take& take) {
  if (file.fragment == kNoFragment) return {};
  size_t size = 0;
  sqfs_u8* raw = nullptr;
  errno = 0;
  const int code = sqfs_data_reader_get_fragment(state_->data.get(), inode_of(file), &size, &raw);
  const Memory<sqfs_u8> bytes(raw);
  if (code != 0) return library_error(code, "read fragment");
  if (size == 0) return {};
  return pass_on(file, take, uint64_t{file.blocks} * state_->info.block_size, bytes.get(), size);
}

Result<StoredFile> SquashfsReader::stored(const ImageNode& file) {
  const sqfs_inode_generic_t* inode = inode_of(file);
  StoredFile stored;
  stored.size = file.size;
  int code = sqfs_inode_get_file_block_start(inode, &stored.start);
  if (code == 0) code = sqfs_inode_get_frag_location(inode, &stored.fragment, &stored.fragment_offset);
  if (code != 0) return library_error(code, "read inode");
  if (inode->base.type == SQFS_INODE_EXT_FILE) stored.sparse = inode->data.file_ext.sparse;
  stored.blocks.assign(inode->extra, inode->extra + inode->payload_bytes_used / sizeof(sqfs_u32));
  return stored;
}

Result<std::vector<ImageAttribute>> SquashfsReader::attributes(const ImageNode& node) {
  std::vector<ImageAttribute> result;
  uint32_t index = kNoXattr;
  if (!state_->attributes || sqfs_inode_get_xattr_index(inode_of(node), &index) != 0 || index == kNoXattr)
    return result;
  sqfs_xattr_reader_t* reader = state_->attributes.get();
  sqfs_xattr_id_t description{};
  int code = sqfs_xattr_reader_get_desc(reader, index, &description);
  if (code == 0) code = sqfs_xattr_reader_seek_kv(reader, &description);
  if (code != 0) return library_error(code, "read attributes");
  for (uint32_t i = 0; i < description.count; ++i) {
    sqfs_xattr_entry_t* raw_key = nullptr;
    code = sqfs_xattr_reader_read_key(reader, &raw_key);
    const Memory<sqfs_xattr_entry_t> key(raw_key);
    if (code != 0) return library_error(code, "read attribute name");
    sqfs_xattr_value_t* raw_value = nullptr;
    code = sqfs_xattr_reader_read_value(reader, key.get(), &raw_value);
    const Memory<sqfs_xattr_value_t> value(raw_value);
    if (code != 0) return library_error(code, "read attribute value");
    // The library puts the prefix ("user.") in front and ends the name with a NUL.
    result.emplace_back(reinterpret_cast<const char*>(key->key),
                        std::string(reinterpret_cast<const char*>(value->value), value->size));
  }
  return result;
}

}  // namespace situla
