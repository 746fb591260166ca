// The only file of hooks/import that includes sqfs/*.h.
#include "hooks/import/squashfs_writer.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <unordered_map>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sqfs/block.h>
#include <sqfs/block_processor.h>
#include <sqfs/block_writer.h>
#include <sqfs/compressor.h>
#include <sqfs/dir_writer.h>
#include <sqfs/error.h>
#include <sqfs/frag_table.h>
#include <sqfs/id_table.h>
#include <sqfs/inode.h>
#include <sqfs/io.h>
#include <sqfs/meta_writer.h>
#include <sqfs/super.h>
#include <sqfs/xattr.h>
#include <sqfs/xattr_writer.h>

#include "common/base/text.hpp"

namespace situla {
namespace {

constexpr size_t kPadding = 4096;  // a loop device sees whole sectors only
constexpr size_t kHarvest = 8192;  // files between two collections of what libsquashfs knows of them
constexpr uint32_t kBacklogPerWorker = 16;
constexpr sqfs_u64 kWriteBehind = sqfs_u64{8} << 20U;

template <typename T>
struct Destroy {
  void operator()(T* object) const { sqfs_destroy(object); }
};
template <typename T>
using Owned = std::unique_ptr<T, Destroy<T>>;

/// sqfs_file_t upon a descriptor that somebody else owns. Remembers the errno that libsquashfs turns into "I/O error".
struct DescriptorFile {
  sqfs_file_t base{};
  int fd = -1;
  sqfs_u64 size = 0;
  sqfs_u64 flushed = 0;
  int errnum = 0;

  static DescriptorFile& from(sqfs_file_t* file) { return *reinterpret_cast<DescriptorFile*>(file); }

  static int read_at(sqfs_file_t* file, sqfs_u64 offset, void* buffer, size_t size) {
    DescriptorFile& self = from(file);
    auto* place = static_cast<char*>(buffer);
    while (size > 0) {
      const ssize_t count = pread(self.fd, place, size, static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) self.errnum = errno;
      if (count <= 0) return count == 0 ? SQFS_ERROR_OUT_OF_BOUNDS : SQFS_ERROR_IO;
      place += count;
      offset += static_cast<sqfs_u64>(count);
      size -= static_cast<size_t>(count);
    }
    return 0;
  }

  static int write_at(sqfs_file_t* file, sqfs_u64 offset, const void* buffer, size_t size) {
    DescriptorFile& self = from(file);
    const auto* place = static_cast<const char*>(buffer);
    while (size > 0) {
      const ssize_t count = pwrite(self.fd, place, size, static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) {
        self.errnum = errno;
        return SQFS_ERROR_IO;
      }
      place += count;
      offset += static_cast<sqfs_u64>(count);
      size -= static_cast<size_t>(count);
    }
    self.size = std::max(self.size, offset);
    self.write_behind();
    return 0;
  }

  /// The disk works while the processors compress, so that the fsync at the end has little left to do.
  void write_behind() {
    if (size < flushed + kWriteBehind) return;
    sync_file_range(fd, static_cast<off_t>(flushed), static_cast<off_t>(size - flushed), SYNC_FILE_RANGE_WRITE);
    flushed = size;
  }

  static sqfs_u64 get_size(const sqfs_file_t* file) { return reinterpret_cast<const DescriptorFile*>(file)->size; }

  static int truncate(sqfs_file_t* file, sqfs_u64 size) {
    DescriptorFile& self = from(file);
    if (ftruncate(self.fd, static_cast<off_t>(size)) != 0) {
      self.errnum = errno;
      return SQFS_ERROR_IO;
    }
    self.size = size;
    self.flushed = std::min(self.flushed, size);
    return 0;
  }

  static void destroy(sqfs_object_t*) {}

  explicit DescriptorFile(int descriptor) : fd(descriptor) {
    base.base.destroy = destroy;
    base.read_at = read_at;
    base.write_at = write_at;
    base.get_size = get_size;
    base.truncate = truncate;
  }
};

/// A compressor that leaves everything as it is, for -noI and -noX.
struct StoringCompressor {
  sqfs_compressor_t base{};
  StoringCompressor() {
    base.base.destroy = [](sqfs_object_t*) {};
    base.do_block = [](sqfs_compressor_t*, const sqfs_u8*, sqfs_u32, sqfs_u8*, sqfs_u32) -> sqfs_s32 { return 0; };
  }
};

/// Metadata blocks for which compressing gains nothing are stored as they are. libsquashfs 1.2's lz4 keeps the larger
/// form of very small blocks, which the kernel reads but unsquashfs does not.
struct MetadataCompressor {
  sqfs_compressor_t base{};
  sqfs_compressor_t* inner = nullptr;
  MetadataCompressor() {
    base.base.destroy = [](sqfs_object_t*) {};
    base.do_block = [](sqfs_compressor_t* self, const sqfs_u8* in, sqfs_u32 size, sqfs_u8* out,
                       sqfs_u32 room) -> sqfs_s32 {
      sqfs_compressor_t* real = reinterpret_cast<MetadataCompressor*>(self)->inner;
      const sqfs_s32 result = real->do_block(real, in, size, out, room);
      return result > 0 && static_cast<sqfs_u32>(result) >= size ? 0 : result;
    };
  }
};

const char* describe(int code) {
  switch (code) {
    case SQFS_ERROR_ALLOC:
      return "out of memory";
    case SQFS_ERROR_IO:
      return "input/output error";
    case SQFS_ERROR_COMPRESSOR:
      return "the compressor failed";
    case SQFS_ERROR_UNSUPPORTED:
      return "not supported by libsquashfs";
    case SQFS_ERROR_OVERFLOW:
      return "a number is too large for squashfs";
    default:
      return "libsquashfs failed";
  }
}

SQFS_COMPRESSOR compressor_id(SquashOptions::Compressor compressor) {
  switch (compressor) {
    case SquashOptions::Compressor::gzip:
      return SQFS_COMP_GZIP;
    case SquashOptions::Compressor::lzo:
      return SQFS_COMP_LZO;
    case SquashOptions::Compressor::lz4:
      return SQFS_COMP_LZ4;
    case SquashOptions::Compressor::xz:
      return SQFS_COMP_XZ;
    case SquashOptions::Compressor::zstd:
      break;
  }
  return SQFS_COMP_ZSTD;
}

uint32_t usable_processors() {
  // Of the affinity mask, which is how Slurm limits a job to its processors.
  return std::clamp(std::thread::hardware_concurrency(), 1U, 64U);
}

/// What is left of an inode until the end: where its content lies.
struct FileData {
  sqfs_u64 start = 0, size = 0, sparse = 0;
  sqfs_u32 fragment = kNone, fragment_offset = kNone;
  uint32_t first_block = 0, blocks = 0;  ///< in the table of block sizes
};

}  // namespace

struct SquashfsWriter::State {
  State(int fd, std::string name, SquashOptions chosen) : file(fd), where(std::move(name)), options(chosen) {}
  ~State() {
    for (sqfs_inode_generic_t* inode : pending) sqfs_free(inode);
  }

  DescriptorFile file;
  std::string where;
  SquashOptions options;
  StoringCompressor storing;
  MetadataCompressor metadata;
  sqfs_super_t super{};
  Owned<sqfs_compressor_t> compressor, decompressor;
  Owned<sqfs_frag_table_t> fragments;
  Owned<sqfs_id_table_t> ids;
  Owned<sqfs_block_writer_t> blocks;
  Owned<sqfs_xattr_writer_t> xattrs;
  Owned<sqfs_block_processor_t> processor;  // last: its threads use the others

  std::array<sqfs_inode_generic_t*, kHarvest> pending{};  ///< libsquashfs writes into these until the next sync
  size_t pending_count = 0;
  std::vector<FileData> files;
  std::vector<sqfs_u32> block_sizes;
  bool file_open = false;

  [[nodiscard]] Result<void> check(int code, std::string_view what) {
    if (code == 0) return {};
    if (file.errnum != 0) {
      Error error = Error::from_errno(file.errnum, "write " + where);
      if (file.errnum == ENOSPC || file.errnum == EDQUOT)
        error.with_hint("make room on that file system, or choose another place");
      if (file.errnum == EFBIG) error.with_hint("the file size limit (ulimit -f) is too small for this image");
      return fail(std::move(error));
    }
    return fail(code == SQFS_ERROR_ALLOC ? ErrorKind::no_space : ErrorKind::failure,
                std::string(what) + " " + where + ": " + describe(code));
  }

  Result<void> create_compressors();
  Result<void> create_parts();
  Result<void> harvest(bool last);
  void keep(const sqfs_inode_generic_t& inode);
  sqfs_compressor_t* inode_compressor() { return options.store_inodes ? &storing.base : &metadata.base; }
  [[nodiscard]] sqfs_u32 time_of(const LayerEntry& entry) const { return options.all_time.value_or(entry.mtime); }
};

Result<void> SquashfsWriter::State::create_compressors() {
  sqfs_compressor_config_t config;
  sqfs_u16 flags = 0;
  if (options.compressor == SquashOptions::Compressor::lz4 && options.lz4_hc) flags = SQFS_COMP_FLAG_LZ4_HC;
  TRY(check(sqfs_compressor_config_init(&config, compressor_id(options.compressor), options.block_bytes, flags),
            "prepare"));
  if (options.level && options.compressor != SquashOptions::Compressor::lz4) config.level = *options.level;
  sqfs_compressor_t* created = nullptr;
  TRY(check(sqfs_compressor_create(&config, &created), "choose the compressor of"));
  compressor.reset(created);
  metadata.inner = created;
  config.flags |= SQFS_COMP_FLAG_UNCOMPRESS;
  TRY(check(sqfs_compressor_create(&config, &created), "choose the compressor of"));
  decompressor.reset(created);
  return {};
}

Result<void> SquashfsWriter::State::create_parts() {
  TRY(check(sqfs_super_init(&super, options.block_bytes, options.made_time, compressor_id(options.compressor)),
            "prepare"));
  TRY(check(sqfs_super_write(&super, &file.base), "write"));
  const int written = compressor->write_options(compressor.get(), &file.base);
  TRY(check(std::min(written, 0), "write"));
  if (written > 0) super.flags |= SQFS_FLAG_COMPRESSOR_OPTIONS;
  fragments.reset(sqfs_frag_table_create(0));
  ids.reset(sqfs_id_table_create(0));
  blocks.reset(sqfs_block_writer_create(&file.base, kPadding, 0));
  xattrs.reset(sqfs_xattr_writer_create(0));
  if (!fragments || !ids || !blocks || !xattrs)
    return fail(ErrorKind::no_space, "prepare " + where + ": out of memory");
  sqfs_block_processor_desc_t wanted{};
  wanted.size = sizeof wanted;
  wanted.max_block_size = options.block_bytes;
  wanted.num_workers = options.workers != 0 ? options.workers : usable_processors();
  // Bounded by memory, not by a count: blocks may be 1 MiB.
  wanted.max_backlog =
      std::clamp<uint32_t>((32U << 20U) / options.block_bytes, 4, kBacklogPerWorker * wanted.num_workers);
  wanted.cmp = compressor.get();
  wanted.wr = blocks.get();
  wanted.tbl = fragments.get();
  // Equal small files are compared byte by byte, not by their 32-bit checksums alone.
  wanted.file = &file.base;
  wanted.uncmp = decompressor.get();
  sqfs_block_processor_t* created = nullptr;
  TRY(check(sqfs_block_processor_create_ex(&wanted, &created), "start the threads that write"));
  processor.reset(created);
  return {};
}

void SquashfsWriter::State::keep(const sqfs_inode_generic_t& inode) {
  FileData data;
  sqfs_inode_get_file_size(&inode, &data.size);
  sqfs_inode_get_file_block_start(&inode, &data.start);
  sqfs_inode_get_frag_location(&inode, &data.fragment, &data.fragment_offset);
  if (inode.base.type == SQFS_INODE_EXT_FILE) data.sparse = inode.data.file_ext.sparse;
  data.first_block = static_cast<uint32_t>(block_sizes.size());
  data.blocks = inode.payload_bytes_used / static_cast<uint32_t>(sizeof(sqfs_u32));
  block_sizes.insert(block_sizes.end(), inode.extra, inode.extra + data.blocks);
  files.push_back(data);
}

/// libsquashfs keeps an allocated inode per file and fills it later. Turned into a few bytes each, now and then.
Result<void> SquashfsWriter::State::harvest(bool last) {
  TRY(check(last ? sqfs_block_processor_finish(processor.get()) : sqfs_block_processor_sync(processor.get()), "write"));
  for (size_t i = 0; i < pending_count; ++i) {
    keep(*pending[i]);
    sqfs_free(std::exchange(pending[i], nullptr));
  }
  pending_count = 0;
  return {};
}

bool can_write(SquashOptions::Compressor compressor) {
  sqfs_compressor_config_t config;
  sqfs_compressor_t* created = nullptr;
  if (sqfs_compressor_config_init(&config, compressor_id(compressor), 131072, 0) != 0) return false;
  if (sqfs_compressor_create(&config, &created) != 0) return false;
  sqfs_destroy(created);
  return true;
}

SquashfsWriter::SquashfsWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
SquashfsWriter::~SquashfsWriter() = default;

Result<std::unique_ptr<SquashfsWriter>> SquashfsWriter::create(int fd, const std::string& where,
                                                               const SquashOptions& options) {
  auto state = std::make_unique<State>(fd, where, options);
  TRY(state->create_compressors());
  TRY(state->create_parts());
  return std::unique_ptr<SquashfsWriter>(new SquashfsWriter(std::move(state)));
}

Result<uint32_t> SquashfsWriter::begin_file(uint64_t size) {
  State& state = *state_;
  if (state.pending_count == kHarvest) TRY(state.harvest(false));
  // As mksquashfs: only files smaller than a block share one with others. The tail of a larger file stays with it,
  // where reading it costs no second block.
  const bool small = size < state.options.block_bytes && state.options.fragments;
  sqfs_u32 flags = small ? 0 : SQFS_BLK_DONT_FRAGMENT;
  if (small ? state.options.store_fragments : state.options.store_data) flags |= SQFS_BLK_DONT_COMPRESS;
  if (!state.options.deduplicate) flags |= SQFS_BLK_DONT_DEDUPLICATE;
  sqfs_inode_generic_t** inode = &state.pending[state.pending_count];
  TRY(state.check(sqfs_block_processor_begin_file(state.processor.get(), inode, nullptr, flags), "write"));
  ++state.pending_count;
  state.file_open = true;
  return static_cast<uint32_t>(state.files.size() + state.pending_count - 1);
}

Result<void> SquashfsWriter::append(std::string_view bytes) {
  return state_->check(sqfs_block_processor_append(state_->processor.get(), bytes.data(), bytes.size()), "write");
}

Result<void> SquashfsWriter::end_file() {
  state_->file_open = false;
  return state_->check(sqfs_block_processor_end_file(state_->processor.get()), "write");
}

Result<uint32_t> SquashfsWriter::add_xattrs(const std::vector<std::pair<std::string, std::string>>& xattrs) {
  State& state = *state_;
  uint32_t index = kNone;
  size_t added = 0;
  TRY(state.check(sqfs_xattr_writer_begin(state.xattrs.get(), 0), "write"));
  for (const auto& [name, value] : xattrs) {
    if (sqfs_get_xattr_prefix_id(name.c_str()) < 0 || value.size() > 65535) continue;
    TRY(state.check(sqfs_xattr_writer_add(state.xattrs.get(), name.c_str(), value.data(), value.size()), "write"));
    ++added;
  }
  TRY(state.check(sqfs_xattr_writer_end(state.xattrs.get(), &index), "write"));
  return added == 0 ? kNone : index;
}

namespace {

/// Inodes and directories, children before parents, without recursion: the depth is the image's choice.
class TreeWriter {
 public:
  using Check = std::function<Result<void>(int)>;

  struct Parts {
    sqfs_meta_writer_t* inodes;
    sqfs_dir_writer_t* directories;
    const std::vector<FileData>* files;
    const std::vector<sqfs_u32>* block_sizes;
    std::function<sqfs_u32(const LayerEntry&)> time_of;
    Check check;
  };

  TreeWriter(const RootTree& tree, Parts parts) : tree_(tree), parts_(std::move(parts)) {}

  Result<sqfs_u64> write() {
    number_all();
    std::vector<Open> open;
    open.push_back(make_open(RootTree::kRoot));
    while (true) {
      Open& top = open.back();
      while (top.next < top.children.size() && !tree_.is_directory(top.children[top.next])) ++top.next;
      if (top.next < top.children.size()) {
        const uint32_t child = top.children[top.next++];
        open.push_back(make_open(child));  // top is invalid now
        continue;
      }
      TRY_ASSIGN(const sqfs_u64 reference, write_directory(top));
      if (open.size() == 1) return reference;
      references_.emplace(top.node, reference);
      open.pop_back();
    }
  }

  [[nodiscard]] sqfs_u32 inode_count() const { return inode_count_; }
  [[nodiscard]] sqfs_u32 root_number() const { return numbers_.at(tree_.node(RootTree::kRoot).inode); }

 private:
  struct Open {
    uint32_t node;
    std::vector<uint32_t> children;
    size_t next = 0;
  };

  Open make_open(uint32_t node) { return {node, tree_.children(node), 0}; }

  const LayerEntry& entry_of(uint32_t node) const { return tree_.table().entry(tree_.node(node).inode); }

  /// Inode numbers in the order of a walk from the top, so that they depend on the tree only; and links per inode.
  void number_all() {
    numbers_.assign(tree_.table().size(), 0);
    links_.assign(tree_.table().size(), 0);
    std::vector<uint32_t> todo{RootTree::kRoot};
    while (!todo.empty()) {
      const uint32_t node = todo.back();
      todo.pop_back();
      const uint32_t inode = tree_.node(node).inode;
      if (numbers_[inode] == 0) numbers_[inode] = ++inode_count_;
      ++links_[inode];
      if (!tree_.is_directory(node)) continue;
      const std::vector<uint32_t> children = tree_.children(node);
      todo.insert(todo.end(), children.rbegin(), children.rend());
    }
  }

  void fill_base(sqfs_inode_generic_t& inode, const LayerEntry& entry, uint32_t type, uint32_t number) const {
    inode.base.mode = static_cast<sqfs_u16>(type | entry.mode);
    inode.base.uid_idx = inode.base.gid_idx = 0;  // root is the only id
    inode.base.mod_time = parts_.time_of(entry);
    inode.base.inode_number = number;
  }

  Result<sqfs_u64> put(sqfs_inode_generic_t& inode) {
    sqfs_u64 block = 0;
    sqfs_u32 offset = 0;
    sqfs_meta_writer_get_position(parts_.inodes, &block, &offset);
    TRY(parts_.check(sqfs_meta_writer_write_inode(parts_.inodes, &inode)));
    return block << 16U | offset;
  }

  /// Zeroed memory for an inode with room behind it for its payload.
  sqfs_inode_generic_t& fresh(size_t payload) {
    buffer_.assign((sizeof(sqfs_inode_generic_t) + payload + sizeof(uint64_t) - 1) / sizeof(uint64_t), 0);
    auto& inode = *reinterpret_cast<sqfs_inode_generic_t*>(buffer_.data());
    inode.payload_bytes_available = inode.payload_bytes_used = static_cast<sqfs_u32>(payload);
    return inode;
  }

  static uint32_t type_of(EntryKind kind) {
    switch (kind) {
      case EntryKind::directory:
        return S_IFDIR;
      case EntryKind::symlink:
        return S_IFLNK;
      case EntryKind::fifo:
        return S_IFIFO;
      default:
        return S_IFREG;
    }
  }

  Result<sqfs_u64> write_file(const LayerEntry& entry, uint32_t number, uint32_t links) {
    const FileData data = entry.data == kNone ? FileData{} : (*parts_.files)[entry.data];
    sqfs_inode_generic_t& inode = fresh(data.blocks * sizeof(sqfs_u32));
    inode.base.type = SQFS_INODE_EXT_FILE;
    sqfs_inode_file_ext_t& file = inode.data.file_ext;
    file.blocks_start = data.start;
    file.file_size = data.size;
    file.sparse = data.sparse;
    file.nlink = links;
    file.fragment_idx = data.fragment;
    file.fragment_offset = data.fragment_offset;
    file.xattr_idx = entry.xattrs;
    std::copy_n(parts_.block_sizes->begin() + data.first_block, data.blocks, inode.extra);
    fill_base(inode, entry, S_IFREG, number);
    TRY(parts_.check(sqfs_inode_make_basic(&inode)));
    return put(inode);
  }

  Result<sqfs_u64> write_symlink(const LayerEntry& entry, uint32_t number, uint32_t links) {
    const std::string_view target = tree_.table().text(entry.data);
    sqfs_inode_generic_t& inode = fresh(target.size());
    inode.base.type = SQFS_INODE_EXT_SLINK;
    inode.data.slink_ext.nlink = links;
    inode.data.slink_ext.target_size = static_cast<sqfs_u32>(target.size());
    inode.data.slink_ext.xattr_idx = entry.xattrs;
    std::memcpy(inode.extra, target.data(), target.size());
    fill_base(inode, entry, S_IFLNK, number);
    TRY(parts_.check(sqfs_inode_make_basic(&inode)));
    return put(inode);
  }

  Result<sqfs_u64> write_fifo(const LayerEntry& entry, uint32_t number, uint32_t links) {
    sqfs_inode_generic_t& inode = fresh(0);
    inode.base.type = SQFS_INODE_EXT_FIFO;
    inode.data.ipc_ext.nlink = links;
    inode.data.ipc_ext.xattr_idx = entry.xattrs;
    fill_base(inode, entry, S_IFIFO, number);
    TRY(parts_.check(sqfs_inode_make_basic(&inode)));
    return put(inode);
  }

  /// The inode of a name that is no directory; written with its first name.
  Result<sqfs_u64> write_leaf(uint32_t node) {
    const uint32_t index = tree_.node(node).inode;
    const uint32_t links = links_[index];
    if (links > 1) {
      if (const auto found = shared_.find(index); found != shared_.end()) return found->second;
    }
    const LayerEntry& entry = entry_of(node);
    Result<sqfs_u64> reference = 0;
    if (entry.kind == EntryKind::symlink)
      reference = write_symlink(entry, numbers_[index], links);
    else if (entry.kind == EntryKind::fifo)
      reference = write_fifo(entry, numbers_[index], links);
    else
      reference = write_file(entry, numbers_[index], links);
    if (reference && links > 1) shared_.emplace(index, *reference);
    return reference;
  }

  Result<sqfs_u64> write_directory(const Open& open) {
    std::vector<sqfs_u64> references;
    references.reserve(open.children.size());
    uint32_t subdirectories = 0;
    for (const uint32_t child : open.children) {
      if (tree_.is_directory(child)) {
        const auto found = references_.find(child);
        references.push_back(found->second);
        references_.erase(found);
        ++subdirectories;
        continue;
      }
      TRY_ASSIGN(const sqfs_u64 reference, write_leaf(child));
      references.push_back(reference);
    }
    TRY(parts_.check(sqfs_dir_writer_begin(parts_.directories, 0)));
    for (size_t i = 0; i < open.children.size(); ++i) {
      const std::string name(tree_.name(open.children[i]));
      const LayerEntry& entry = entry_of(open.children[i]);
      TRY(parts_.check(sqfs_dir_writer_add_entry(parts_.directories, name.c_str(),
                                                 numbers_[tree_.node(open.children[i]).inode], references[i],
                                                 static_cast<sqfs_u16>(type_of(entry.kind) | entry.mode))));
    }
    TRY(parts_.check(sqfs_dir_writer_end(parts_.directories)));
    return write_directory_inode(open.node, subdirectories + 2);
  }

  Result<sqfs_u64> write_directory_inode(uint32_t node, uint32_t links) {
    const LayerEntry& entry = entry_of(node);
    // The root's parent is a number that no inode has, as the kernel and other writers have it.
    const uint32_t parent =
        node == RootTree::kRoot ? inode_count_ + 1 : numbers_[tree_.node(tree_.node(node).parent).inode];
    struct Free {
      void operator()(sqfs_inode_generic_t* inode) const { sqfs_free(inode); }
    };
    const std::unique_ptr<sqfs_inode_generic_t, Free> inode(
        sqfs_dir_writer_create_inode(parts_.directories, links, entry.xattrs, parent));
    if (!inode) return fail(ErrorKind::no_space, "write the directories: out of memory");
    fill_base(*inode, entry, S_IFDIR, numbers_[tree_.node(node).inode]);
    return put(*inode);
  }

  const RootTree& tree_;
  Parts parts_;
  std::vector<sqfs_u32> numbers_, links_;
  sqfs_u32 inode_count_ = 0;
  std::unordered_map<uint32_t, sqfs_u64> references_;  ///< of finished directories whose parent is not finished
  std::unordered_map<uint32_t, sqfs_u64> shared_;      ///< of inodes with several names
  std::vector<uint64_t> buffer_;
};

}  // namespace

Result<uint64_t> SquashfsWriter::finish(const RootTree& tree) {
  State& state = *state_;
  TRY(state.harvest(true));
  sqfs_u16 root_id = 0;
  TRY(state.check(sqfs_id_table_id_to_index(state.ids.get(), 0, &root_id), "write"));
  const Owned<sqfs_meta_writer_t> inodes(sqfs_meta_writer_create(&state.file.base, state.inode_compressor(), 0));
  const Owned<sqfs_meta_writer_t> names(
      sqfs_meta_writer_create(&state.file.base, state.inode_compressor(), SQFS_META_WRITER_KEEP_IN_MEMORY));
  const Owned<sqfs_dir_writer_t> directories(
      names ? sqfs_dir_writer_create(names.get(), SQFS_DIR_WRITER_CREATE_EXPORT_TABLE) : nullptr);
  if (!inodes || !directories) return fail(ErrorKind::no_space, "write " + state.where + ": out of memory");

  state.super.inode_table_start = state.file.size;
  const auto check = [&](int code) { return state.check(code, "write"); };
  TreeWriter writer(tree, {inodes.get(), directories.get(), &state.files, &state.block_sizes,
                           [&](const LayerEntry& entry) { return state.time_of(entry); }, check});
  TRY_ASSIGN(state.super.root_inode_ref, writer.write());
  TRY(check(sqfs_meta_writer_flush(inodes.get())));
  TRY(check(sqfs_meta_writer_flush(names.get())));
  state.super.directory_table_start = state.file.size;
  TRY(check(sqfs_meta_write_write_to_file(names.get())));
  state.super.inode_count = writer.inode_count();

  sqfs_compressor_t* compressor = state.inode_compressor();
  if (sqfs_frag_table_get_size(state.fragments.get()) == 0) {
    state.super.flags |= SQFS_FLAG_NO_FRAGMENTS;
    state.super.flags &= static_cast<sqfs_u16>(~SQFS_FLAG_ALWAYS_FRAGMENTS);
    state.super.fragment_table_start = UINT64_MAX;
  } else {
    TRY(check(sqfs_frag_table_write(state.fragments.get(), &state.file.base, &state.super, compressor)));
  }
  TRY(check(sqfs_dir_writer_write_export_table(directories.get(), &state.file.base, compressor, writer.root_number(),
                                               state.super.root_inode_ref, &state.super)));
  TRY(check(sqfs_id_table_write(state.ids.get(), &state.file.base, &state.super, compressor)));
  TRY(check(sqfs_xattr_writer_flush(state.xattrs.get(), &state.file.base, &state.super,
                                    state.options.store_xattrs ? &state.storing.base : &state.metadata.base)));
  if (state.options.store_inodes) state.super.flags |= SQFS_FLAG_UNCOMPRESSED_INODES | SQFS_FLAG_UNCOMPRESSED_IDS;
  if (state.options.store_data) state.super.flags |= SQFS_FLAG_UNCOMPRESSED_DATA;
  if (state.options.store_fragments) state.super.flags |= SQFS_FLAG_UNCOMPRESSED_FRAGMENTS;
  if (state.options.store_xattrs) state.super.flags |= SQFS_FLAG_UNCOMPRESSED_XATTRS;

  state.super.bytes_used = state.file.size;
  TRY(check(sqfs_super_write(&state.super, &state.file.base)));
  if (const size_t over = state.file.size % kPadding; over != 0) {
    static constexpr std::array<char, kPadding> kZeros{};
    TRY(check(DescriptorFile::write_at(&state.file.base, state.file.size, kZeros.data(), kPadding - over)));
  }
  return state.file.size;
}

}  // namespace situla
