// The adapter of libsquashfs: this file, squashfs_io.hpp and squashfs_tree.hpp include sqfs/*.h.
#include "hooks/squashfs/writer.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <thread>

#include <sqfs/block.h>
#include <sqfs/block_processor.h>
#include <sqfs/block_writer.h>
#include <sqfs/compressor.h>
#include <sqfs/dir_writer.h>
#include <sqfs/frag_table.h>
#include <sqfs/inode.h>
#include <sqfs/meta_writer.h>
#include <sqfs/super.h>
#include <sqfs/xattr.h>
#include <sqfs/xattr_writer.h>

#include "hooks/squashfs/adopt.hpp"
#include "hooks/squashfs/io.hpp"
#include "hooks/squashfs/layout.hpp"
#include "hooks/squashfs/tree.hpp"

namespace situla {
namespace {

constexpr size_t kPadding = 4096;  // a loop device sees whole sectors only
constexpr size_t kHarvest = 8192;  // files between two collections of what libsquashfs knows of them
// Blocks that wait for a thread. More of them are more memory that is touched for the first time, and nothing is sooner
// done: with 64 an export of 70 MB takes a fifth longer.
constexpr uint32_t kBacklogPerWorker = 16;

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

uint32_t usable_processors() {
  // Of the affinity mask, which is how Slurm limits a job to its processors.
  return std::clamp(std::thread::hardware_concurrency(), 1U, 64U);
}

/// One thread inflates and reads the tar; this many compress faster than that as long as compressing is cheap. More of
/// them cost memory, and time where files are small: libsquashfs wakes all of them for every file.
constexpr uint32_t kCheapWorkers = 8;

uint32_t workers_of(const SquashOptions& options) {
  const bool cheap = options.store_data || (options.compressor == SquashOptions::Compressor::lz4 && !options.lz4_hc) ||
                     (options.compressor == SquashOptions::Compressor::zstd && options.level.value_or(15) <= 3);
  const uint32_t most = options.workers != 0 ? options.workers : usable_processors();
  return cheap ? std::min(most, kCheapWorkers) : most;
}

}  // namespace

struct SquashfsWriter::State {
  State(int fd, std::string name, SquashOptions chosen) : file(fd), where(std::move(name)), options(std::move(chosen)) {
    file.make_room = &options.make_room;
  }
  ~State() {
    // After a failure: libsquashfs forgets to free the blocks that its threads still hold.
    if (processor && file_open) sqfs_block_processor_end_file(processor.get());
    if (processor) sqfs_block_processor_sync(processor.get());
    for (sqfs_inode_generic_t* inode : pending) sqfs_free(inode);
  }

  DescriptorFile file;
  std::string where;
  SquashOptions options;
  StoringCompressor storing;
  MetadataCompressor metadata;
  ComparingDecompressor comparing;
  sqfs_super_t super{};
  Owned<sqfs_compressor_t> compressor, decompressor;
  std::unique_ptr<WorkerCompressor> working;
  Owned<sqfs_frag_table_t> fragments;
  Owned<sqfs_block_writer_t> blocks;
  Owned<sqfs_xattr_writer_t> xattrs;
  Owned<sqfs_block_processor_t> processor;  // last: its threads use the others

  std::array<sqfs_inode_generic_t*, kHarvest> pending{};  ///< libsquashfs writes into these until the next sync
  size_t pending_count = 0;
  FileTable files;
  PieceList<sqfs_u32> block_sizes;
  bool file_open = false;
  std::map<const SquashfsDonor*, Adoption> adoptions;

  [[nodiscard]] Error write_error(int errnum) const {
    Error error = Error::from_errno(errnum, "write " + where);
    if (errnum == ENOSPC || errnum == EDQUOT)
      error.with_code(ErrorCode::disk_full).with_hint("make room on that file system, or choose another place");
    if (errnum == EFBIG)
      error.with_code(ErrorCode::image_too_large)
          .with_hint("the file size limit (ulimit -f) is too small for this image");
    return error;
  }
  [[nodiscard]] Error take_error(const SquashfsDonor& donor, const Error& error) const {
    const int errnum = error.errnum();
    if (errnum == ENOSPC || errnum == EDQUOT || errnum == EFBIG) return write_error(errnum);
    return Error(error).with_context("take blocks of " + donor.where() + " to " + where);
  }
  [[nodiscard]] Result<void> check(int code, std::string_view what) {
    if (code == 0 && file.errnum == 0 && !file.comparing.spent) return {};
    if (file.errnum != 0) return fail(write_error(file.errnum));
    if (file.comparing.spent)
      return fail(ErrorKind::corrupt, "the contents of the image's files were made to have the same checksums");
    Error error(code == SQFS_ERROR_ALLOC ? ErrorKind::no_space : ErrorKind::failure,
                std::string(what) + " " + where + ": " + describe(code));
    if (code == SQFS_ERROR_ALLOC) error.with_code(ErrorCode::memory);
    return fail(std::move(error));
  }

  Result<void> create_compressors();
  Result<void> create_parts();
  Result<void> start_processor();
  Result<void> harvest(bool last);
  Result<void> write_ids(const FileOwners& owners);
  void keep(const sqfs_inode_generic_t& inode);
  uint32_t keep(const StoredFile& stored, sqfs_u64 start, sqfs_u32 fragment);
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
  comparing.inner = created;
  comparing.file = &file;
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
  blocks.reset(sqfs_block_writer_create(&file.base, kPadding, 0));
  xattrs.reset(sqfs_xattr_writer_create(0));
  if (!fragments || !blocks || !xattrs)
    return fail(Error(ErrorKind::no_space, "prepare " + where + ": out of memory").with_code(ErrorCode::memory));
  return start_processor();
}

Result<void> SquashfsWriter::State::start_processor() {
  sqfs_block_processor_desc_t wanted{};
  wanted.size = sizeof wanted;
  wanted.max_block_size = options.block_bytes;
  wanted.num_workers = workers_of(options);
  // Bounded by memory, not by a count: blocks may be 1 MiB.
  wanted.max_backlog =
      std::clamp<uint32_t>((32U << 20U) / options.block_bytes, 4, kBacklogPerWorker * wanted.num_workers);
  wanted.cmp = &working->base;
  wanted.wr = blocks.get();
  wanted.tbl = fragments.get();
  // Equal small files are compared byte by byte, not by their 32-bit checksums alone.
  wanted.file = &file.base;
  wanted.uncmp = &comparing.base;
  sqfs_block_processor_t* created = nullptr;
  TRY(check(sqfs_block_processor_create_ex(&wanted, &created), "start the threads that write"));
  processor.reset(created);
  return {};
}

void SquashfsWriter::State::keep(const sqfs_inode_generic_t& inode) {
  StoredFile stored;
  sqfs_inode_get_file_size(&inode, &stored.size);
  sqfs_inode_get_file_block_start(&inode, &stored.start);
  sqfs_inode_get_frag_location(&inode, &stored.fragment, &stored.fragment_offset);
  if (inode.base.type == SQFS_INODE_EXT_FILE) stored.sparse = inode.data.file_ext.sparse;
  stored.blocks.assign(inode.extra, inode.extra + inode.payload_bytes_used / sizeof(sqfs_u32));
  keep(stored, stored.start, stored.fragment);
}

uint32_t SquashfsWriter::State::keep(const StoredFile& stored, sqfs_u64 start, sqfs_u32 fragment) {
  FileData data;
  data.size = stored.size;
  data.start = start;
  data.sparse = stored.sparse;
  data.fragment = fragment;
  if (fragment != kNone) data.fragment_offset = stored.fragment_offset;
  data.first_block = static_cast<uint32_t>(block_sizes.size());
  data.blocks = static_cast<uint32_t>(stored.blocks.size());
  for (const uint32_t block : stored.blocks) block_sizes.push_back(block);
  files.add(data);
  return static_cast<uint32_t>(files.size() - 1);
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

/// Blocks that are not compressed, and behind them their places: with nobody but 0 that is an OwnIdTable.
Result<void> SquashfsWriter::State::write_ids(const FileOwners& owners) {
  constexpr size_t kIdsOfBlock = squashfs::kMetadataBytes / sizeof(uint32_t);
  const std::vector<uint32_t>& ids = owners.ids();
  std::string bytes, places;
  for (size_t begin = 0; begin < ids.size(); begin += kIdsOfBlock) {
    const size_t count = std::min(kIdsOfBlock, ids.size() - begin);
    const uint64_t place = file.size + bytes.size();
    const auto header = static_cast<uint16_t>(squashfs::kMetadataStored | (count * sizeof(uint32_t)));
    places.append(reinterpret_cast<const char*>(&place), sizeof place);
    bytes.append(reinterpret_cast<const char*>(&header), sizeof header);
    bytes.append(reinterpret_cast<const char*>(&ids[begin]), count * sizeof(uint32_t));
  }
  super.id_count = static_cast<sqfs_u16>(ids.size());
  super.id_table_start = file.size + bytes.size();
  bytes += places;
  return check(DescriptorFile::write_at(&file.base, file.size, bytes.data(), bytes.size()), "write");
}

bool belongs_in_image(std::string_view attribute) {
  return !attribute.starts_with("trusted.overlay.") && !attribute.starts_with("user.overlay.") &&
         !attribute.starts_with("user.situla.") && attribute != "security.selinux" &&
         attribute.find('\0') == std::string_view::npos;
}

SquashfsWriter::SquashfsWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
SquashfsWriter::~SquashfsWriter() = default;

Result<std::unique_ptr<SquashfsWriter>> SquashfsWriter::create(int fd, const std::string& where,
                                                               const SquashOptions& options, Trace* trace) {
  auto state = std::make_unique<State>(fd, where, options);
  state->file.trace = trace;
  TRY(state->create_compressors());
  state->working = std::make_unique<WorkerCompressor>(state->compressor.get(), trace);
  TRY(state->create_parts());
  return std::unique_ptr<SquashfsWriter>(new SquashfsWriter(std::move(state)));
}

Result<uint32_t> SquashfsWriter::begin_file(uint64_t size) {
  State& state = *state_;
  if (!state.processor) TRY(state.start_processor());
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
  state.file.comparing.add_file(state.options.block_bytes);
  state.file_open = true;
  return static_cast<uint32_t>(state.files.size() + state.pending_count - 1);
}

Result<void> SquashfsWriter::append(std::string_view bytes) {
  state_->file.comparing.add_content(bytes.size());
  return state_->check(sqfs_block_processor_append(state_->processor.get(), bytes.data(), bytes.size()), "write");
}

Result<void> SquashfsWriter::end_file() {
  state_->file_open = false;
  return state_->check(sqfs_block_processor_end_file(state_->processor.get()), "write");
}

Result<void> SquashfsWriter::forget_duplicates() {
  TRY(state_->harvest(true));
  state_->processor.reset();
  return {};
}

Result<std::vector<uint32_t>> SquashfsWriter::adopt(const SquashfsDonor& donor, std::span<const StoredFile> files) {
  State& state = *state_;
  // libsquashfs writes in this thread, at the end of the file; between two files it has nothing in flight.
  TRY(state.harvest(false));
  Adoption& taken = state.adoptions.try_emplace(&donor, donor).first->second;
  const uint32_t block_bytes = state.options.block_bytes;
  std::unordered_map<uint32_t, uint64_t> wanted;  // bytes of each fragment
  for (const StoredFile& file : files)
    if (file.fragment != StoredFile::kNoFragment) wanted[file.fragment] += file.size - block_bytes * file.blocks.size();
  const auto repacked = [&](const StoredFile& file) {
    return file.fragment != StoredFile::kNoFragment && file.blocks.empty() && !taken.has_fragment(file.fragment) &&
           wanted[file.fragment] < block_bytes / 2;
  };
  const auto explained = [&](const Error& error) { return state.take_error(donor, error); };
  std::vector<uint32_t> numbers(files.size(), kNone);
  for (size_t i = 0; i < files.size(); ++i) {
    const StoredFile& file = files[i];
    if (repacked(file)) continue;
    const auto start = taken.take(file, state.file);
    if (!start) return fail(explained(start.error()));
    Result<sqfs_u32> fragment = kNone;
    if (file.fragment != StoredFile::kNoFragment)
      fragment = taken.take_fragment(file, state.file, state.fragments.get());
    if (!fragment) return fail(explained(fragment.error()));
    numbers[i] = state.keep(file, *start, *fragment);
  }
  if (const auto copied = taken.flush(state.file); !copied) return fail(explained(copied.error()));
  for (size_t i = 0; i < files.size(); ++i) {
    if (numbers[i] != kNone) continue;
    TRY_ASSIGN(const std::string_view content, taken.read_fragment(files[i], state.decompressor.get(), block_bytes));
    if (files[i].fragment_offset > content.size() || files[i].size > content.size() - files[i].fragment_offset)
      return fail(ErrorKind::corrupt, donor.where() + ": a file lies outside of its fragment");
    TRY_ASSIGN(numbers[i], begin_file(files[i].size));
    TRY(append(content.substr(files[i].fragment_offset, files[i].size)));
    TRY(end_file());
  }
  return numbers;
}

Result<uint32_t> SquashfsWriter::refer(const StoredFile& file) {
  return state_->keep(file, file.start, file.fragment);
}

Result<void> SquashfsWriter::share(const SquashfsDonor& donor, const std::function<void(uint64_t)>& copied) {
  constexpr uint64_t kPiece = uint64_t{8} << 20U;  // of whole pages, which is what file systems can share
  State& state = *state_;
  for (uint64_t at = 0; at < donor.data_end(); at += kPiece) {
    const uint64_t bytes = std::min(kPiece, donor.data_end() - at);
    // The last page holds metadata of the donor, too, and could not be shared: alone, it does not keep the rest from
    // it.
    const uint64_t pages = bytes / kPadding * kPadding;
    for (;;) {
      auto done = copy_range(donor.fd(), at, state.file.fd, at, pages);
      if (done) done = copy_range(donor.fd(), at + pages, state.file.fd, at + pages, bytes - pages);
      if (done) break;
      state.file.errnum = done.error().errnum();
      if (!state.file.makes_room()) return fail(state.take_error(donor, done.error()));
    }
    state.file.size = at + bytes;
    state.file.write_behind();
    copied(at + bytes);
  }
  const auto with_options = static_cast<sqfs_u16>(SQFS_FLAG_COMPRESSOR_OPTIONS);
  state.super.flags = static_cast<sqfs_u16>(donor.has_compressor_options() ? state.super.flags | with_options
                                                                           : state.super.flags & ~with_options);
  for (uint32_t i = 0; i < donor.fragments(); ++i) {
    TRY_ASSIGN(const StoredFragment fragment, donor.fragment(i));
    TRY(state.check(sqfs_frag_table_append(state.fragments.get(), fragment.start, fragment.size, nullptr), "write"));
  }
  return {};
}

StoredFile SquashfsWriter::stored(uint32_t data) const {
  const FileData file = state_->files[data];
  StoredFile stored{file.start, file.size, file.sparse, file.fragment, file.fragment_offset, {}, {}, {}};
  for (uint32_t i = 0; i < file.blocks; ++i) stored.blocks.push_back(state_->block_sizes[file.first_block + i]);
  return stored;
}

Result<StoredFragment> SquashfsWriter::fragment(uint32_t index) const {
  sqfs_fragment_t entry{};
  if (sqfs_frag_table_lookup(state_->fragments.get(), index, &entry) != 0)
    return fail(ErrorKind::corrupt, state_->where + ": a file lies in a fragment that is not there");
  return StoredFragment{entry.start_offset, entry.size};
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

Result<uint64_t> SquashfsWriter::finish(const RootTree& tree, ImportMeter* meter, const FileOwners& owners) {
  State& state = *state_;
  if (state.processor) TRY(state.harvest(true));
  // What it remembers of every small file, to find equal ones, is no longer needed.
  state.processor.reset();
  const Owned<sqfs_meta_writer_t> inodes(sqfs_meta_writer_create(&state.file.base, state.inode_compressor(), 0));
  WaitingBlocks waiting;
  const Owned<sqfs_meta_writer_t> names(sqfs_meta_writer_create(&waiting.base, state.inode_compressor(), 0));
  const Owned<sqfs_dir_writer_t> directories(
      names ? sqfs_dir_writer_create(names.get(), SQFS_DIR_WRITER_CREATE_EXPORT_TABLE) : nullptr);
  if (!inodes || !directories)
    return fail(Error(ErrorKind::no_space, "write " + state.where + ": out of memory").with_code(ErrorCode::memory));

  state.super.inode_table_start = state.file.size;
  const auto check = [&](int code) { return state.check(code, "write"); };
  TreeWriter writer(
      tree, {inodes.get(), directories.get(), &state.files, &state.block_sizes,
             [&](const LayerEntry& entry) { return state.time_of(entry); }, check, meter, &waiting.size, &owners});
  TRY_ASSIGN(state.super.root_inode_ref, writer.write());
  TRY(check(sqfs_meta_writer_flush(inodes.get())));
  TRY(check(sqfs_meta_writer_flush(names.get())));
  state.super.directory_table_start = state.file.size;
  TRY(check(waiting.append_to(state.file)));
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
  TRY(state.write_ids(owners));
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
