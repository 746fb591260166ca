#include "hooks/import/image_builder.hpp"

#include <algorithm>

#include "common/base/text.hpp"
#include "hooks/import/enroot_files.hpp"

namespace situla {
namespace {

bool beneath_dev(std::string_view directory) {
  return directory == "dev" || directory.starts_with("dev/");
}

}  // namespace

ImageBuilder::ImageBuilder(int fd, std::string where, SquashOptions options, std::vector<Blob> blobs,
                           ImportMeter& meter)
    : fd_(fd),
      where_(std::move(where)),
      options_(std::move(options)),
      blobs_(std::move(blobs)),
      meter_(meter),
      table_(&meter) {
  for (const Blob& blob : blobs_) compressed_bytes_ += blob.size;
}

Result<BuiltImage> ImageBuilder::build(const StreamOpener& open, const ImageConfig& config, const std::string& source) {
  TRY_ASSIGN(writer_, SquashfsWriter::create(fd_, where_, options_, trace_));
  turns_ = TraceTurns(trace_, "tar", "compress");
  BuiltImage built;
  TRY(read_layers(open, built));
  hidden_.forget(table_);
  const TraceSpan span(trace_, "merge and write inodes");
  TRY_ASSIGN(const auto made, write_configuration(config, source));
  TRY(forget_duplicates());
  RootTree tree(table_);
  for (size_t layer = table_.layers(); layer-- > 0;)
    TRY_CONTEXT(blobs_[blobs_.size() - 1 - layer].name,
                tree.apply(layer, [this] { return progress_ != nullptr && progress_->cancelled(); }));
  for (const MadeFile& file : made) TRY(tree.place(file.path, file.entry));
  if (!config.workdir.empty())
    TRY_CONTEXT("make the working directory", tree.make_directories(clean_path(config.workdir)));
  tree.finish();
  tree.open_to_owner();
  if (const auto missing = tree.files_without_data(); !missing.empty()) TRY(reread(open, missing));
  built.dead_bytes = count_dead(tree);
  meter_.give_back(std::exchange(duplicates_, 0));
  TRY_ASSIGN(built.image_bytes, writer_->finish(tree, &meter_));
  return built;
}

void ImageBuilder::reuse(std::vector<std::optional<KnownLayer>> known) {
  known_ = std::move(known);
  for (auto& layer : known_) {
    if (!layer || meter_.take_memory(layer->index.size())) continue;
    meter_.give_back(layer->index.size());
    layer.reset();
  }
}

Result<void> ImageBuilder::read_layers(const StreamOpener& open, BuiltImage& built) {
  known_.resize(blobs_.size());
  std::vector<Blob> fetched;
  for (size_t layer = 0; layer < blobs_.size(); ++layer) {
    const size_t place = blobs_.size() - 1 - layer;
    if (known_[place]) continue;
    streamed_.push_back(layer);
    fetched.push_back(blobs_[place]);
  }
  std::unique_ptr<LayerStream> stream;
  if (!fetched.empty()) {
    TRY_ASSIGN(stream, open(fetched));
    stream->on_wait([&] { report(*stream); });
  }
  for (size_t place = blobs_.size(); place-- > 0;) {
    if (!known_[place]) {
      TRY(read_layer(*stream, blobs_[place]));
      TRY(end_layer());
      continue;
    }
    built.reused_bytes += blobs_[place].size;
    if (auto done = replay_layer(*known_[place]); !done) {
      reuse_failed_ = true;
      return fail(std::move(done).error().with_context(blobs_[place].name));
    }
    TRY(end_layer());
    // A million entries are not kept twice.
    meter_.give_back(known_[place]->index.size());
    known_[place]->index = LayerIndex();
  }
  if (stream) built.unpacked_bytes = stream->unpacked_bytes();
  return {};
}

/// What fails in the stream it reports itself, and names its layer, which may be one that is read later; everything
/// else here. An archive that cannot be read is no news when the layer turns out to have another digest.
Error ImageBuilder::cause_of(Error error, LayerStream& stream, const Blob& blob) {
  const auto is_named = [&error](const Blob& one) { return error.message().starts_with(one.name); };
  if (std::any_of(blobs_.begin(), blobs_.end(), is_named)) return error;
  if (error.kind() == ErrorKind::corrupt)
    if (auto rest = stream.drain(); !rest) return std::move(rest).error();
  return std::move(error).with_context(blob.name);
}

/// The layer being read, and those that are being decompressed ahead of it.
void ImageBuilder::report(const LayerStream& stream, bool finished) {
  if (progress_ == nullptr) return;
  const auto current =
      static_cast<size_t>(std::lower_bound(streamed_.begin(), streamed_.end(), table_.layers()) - streamed_.begin());
  const size_t last = finished ? current : std::min(stream.furthest_blob(), streamed_.size() - 1);
  const auto blob_of = [&](size_t i) -> const Blob& { return blobs_[blobs_.size() - 1 - streamed_[i]]; };
  for (size_t i = current; i <= last; ++i)
    progress_->layer({streamed_[i], blob_of(i).name, stream.compressed_bytes_of(i), blob_of(i).size, finished});
  progress_->waiting(stream.waits_for());
  uint64_t total = 0;
  for (size_t i = 0; i < streamed_.size(); ++i) total += blob_of(i).size;
  progress_->bytes(std::min(stream.compressed_bytes(), total), total);
}

Result<void> ImageBuilder::read_layer(LayerStream& stream, const Blob& blob) {
  table_.begin_layer();
  TarReader reader([&] {
    report(stream);
    turns_.cut(blob.name);
    auto bytes = [&] {
      const TraceSpan span(trace_, "wait for inflate", blob.name);
      return stream.read();
    }();
    turns_.begin();
    return bytes;
  });
  while (true) {
    auto entry = reader.next();
    if (!entry) return fail(cause_of(std::move(entry).error(), stream, blob));
    if (!*entry) break;
    if (auto done = read_entry(reader, stream, **entry); !done)
      return fail(cause_of(std::move(done).error(), stream, blob));
  }
  turns_.cut(blob.name);
  TRY(stream.drain());
  report(stream, true);
  return {};
}

Result<void> ImageBuilder::end_layer() {
  const size_t layer = table_.layers();
  table_.end_layer();
  return layer + 1 < blobs_.size() ? hidden_.add_layer(table_, layer) : Result<void>();
}

Result<void> ImageBuilder::replay_layer(const KnownLayer& known) {
  constexpr size_t kAtOnce = 16384;
  const TraceSpan span(trace_, "reuse", known.donor->where());
  table_.begin_layer();
  std::vector<uint32_t> entries;
  std::vector<StoredFile> files;
  TRY(known.index.for_each([&](IndexedEntry& indexed) -> Result<void> {
    TRY_ASSIGN(const uint32_t index, add_entry(indexed.entry));
    if (!indexed.stored || !needs_content(index)) return {};
    if (auto taken = take_content(indexed.content.size); !taken) return taken;
    entries.push_back(index);
    files.push_back(std::move(indexed.content));
    return files.size() < kAtOnce ? Result<void>() : adopt(*known.donor, entries, files);
  }));
  return adopt(*known.donor, entries, files);
}

Result<void> ImageBuilder::adopt(const SquashfsDonor& donor, std::vector<uint32_t>& entries,
                                 std::vector<StoredFile>& files) {
  TRY_ASSIGN(const std::vector<uint32_t> numbers, writer_->adopt(donor, files));
  for (size_t i = 0; i < entries.size(); ++i) table_.entry(entries[i]).data = numbers[i];
  entries.clear();
  files.clear();
  return {};
}

Result<uint32_t> ImageBuilder::add_entry(const TarEntry& entry) {
  TRY_ASSIGN(const uint32_t index, table_.add(entry));
  if (entry.kind == EntryKind::file)
    TRY_CONTEXT("file '" + excerpt(entry.path) + "'", meter_.take_file(entry.size, compressed_bytes_));
  Xattrs kept;
  for (const auto& xattr : entry.xattrs)
    if (belongs_in_image(xattr.first)) kept.push_back(xattr);
  if (!kept.empty() && entry.kind != EntryKind::hardlink) {
    TRY_ASSIGN(table_.entry(index).xattrs,
               xattrs_.add(kept, meter_, [this](const Xattrs& set) { return writer_->add_xattrs(set); }));
  }
  return index;
}

/// What is kept of a file's content: its place, the sizes of its blocks, and what libsquashfs remembers to find equal
/// ones, of small files until the metadata are written.
Result<void> ImageBuilder::take_content(uint64_t size) {
  constexpr uint64_t kSmallBytes = 12, kLargeBytes = 60, kBlockBytes = 40, kDuplicateBytes = 64;
  if (size >= options_.block_bytes)
    return meter_.take_memory(kLargeBytes + kBlockBytes * (size / options_.block_bytes + 1));
  duplicates_ += kDuplicateBytes;
  return meter_.take_memory(kSmallBytes + kDuplicateBytes);
}

bool ImageBuilder::needs_content(uint32_t index) {
  const LayerEntry& entry = table_.entry(index);
  const std::string_view directory = table_.directory(entry.directory);
  const std::string_view name = table_.text(entry.name);
  if (entry.kind != EntryKind::file || entry.size == 0 || name.starts_with(kWhiteoutPrefix)) return false;
  return !beneath_dev(directory) && !hidden_.hides(table_, entry.directory, name);
}

Result<void> ImageBuilder::read_entry(TarReader& reader, const LayerStream& stream, const TarEntry& entry) {
  TRY_ASSIGN(const uint32_t index, add_entry(entry));
  return needs_content(index) ? write_content(reader, stream, index) : Result<void>();
}

/// A manifest may claim sizes of layers that never come. Holes come from nothing else, and count against what has come.
Result<void> ImageBuilder::take_hole(uint64_t bytes, const LayerStream& stream) {
  holes_ += bytes;
  return meter_.check_expansion(holes_, stream.compressed_bytes());
}

Result<void> ImageBuilder::write_content(TarReader& reader, const LayerStream& stream, uint32_t index) {
  TRY(take_content(table_.entry(index).size));
  TRY_ASSIGN(table_.entry(index).data, turns_.second([&] { return writer_->begin_file(table_.entry(index).size); }));
  TRY(reader.read_data(
      [this](std::string_view bytes) -> Result<void> {
        if (progress_ != nullptr && progress_->cancelled()) return fail(ErrorKind::cancelled, "cancelled");
        return turns_.second([&] { return writer_->append(bytes); });
      },
      [&](uint64_t bytes) { return take_hole(bytes, stream); }));
  return turns_.second([this] { return writer_->end_file(); });
}

uint64_t ImageBuilder::stored_bytes(size_t layer) const {
  const size_t from_top = blobs_.size() - 1 - layer;
  uint64_t bytes = 0;
  for (uint32_t i = table_.begin_of(from_top); i < table_.end_of(from_top); ++i) {
    const LayerEntry& entry = table_.entry(i);
    if (entry.kind == EntryKind::file && entry.data != kNone) bytes += entry.size;
  }
  return bytes;
}

Result<void> ImageBuilder::describe_layer(size_t layer, FileSealer& sealer, LayerIndexWriter& index) const {
  // An index is read as a whole, and repeats the attributes of each entry.
  constexpr uint64_t kEntryBytes = 40;
  uint64_t bytes = 0;
  const size_t from_top = blobs_.size() - 1 - layer;
  for (uint32_t i = table_.begin_of(from_top); i < table_.end_of(from_top); ++i) {
    const LayerEntry& entry = table_.entry(i);
    IndexedEntry indexed;
    indexed.entry.path = table_.path(entry);
    indexed.entry.kind = entry.kind;
    indexed.entry.mode = entry.mode;
    indexed.entry.mtime = entry.mtime;
    indexed.entry.size = entry.size;
    if (entry.kind == EntryKind::symlink || entry.kind == EntryKind::hardlink)
      indexed.entry.target = table_.text(entry.data);
    if (entry.xattrs != kNone) indexed.entry.xattrs = xattrs_.get(entry.xattrs);
    indexed.stored = entry.kind == EntryKind::file && entry.data != kNone;
    if (indexed.stored) {
      indexed.content = writer_->stored(entry.data);
      StoredFragment fragment;
      if (indexed.content.fragment != StoredFile::kNoFragment) {
        TRY_ASSIGN(fragment, writer_->fragment(indexed.content.fragment));
      }
      TRY(sealer.seal(indexed.content, fragment));
    }
    bytes += indexed.entry.path.size() + indexed.entry.target.size() + kEntryBytes;
    for (const auto& [name, value] : indexed.entry.xattrs) bytes += name.size() + value.size();
    bytes += sizeof(uint32_t) * indexed.content.blocks.size();
    if (bytes > LayerIndex::kMostInMemory)
      return fail(ErrorKind::unsupported,
                  "what is to be known of the layer has more than " + format_size(LayerIndex::kMostInMemory));
    TRY(index.add(indexed));
  }
  return {};
}

/// Second look at the layers of files that turned out to be needed. Entries come in the same order as the first time.
Result<void> ImageBuilder::reread(const StreamOpener& open, const std::vector<uint32_t>& missing) {
  for (size_t layer = 0; layer < table_.layers(); ++layer) {
    const auto first = std::lower_bound(missing.begin(), missing.end(), table_.begin_of(layer));
    const auto last = std::lower_bound(missing.begin(), missing.end(), table_.end_of(layer));
    if (first == last) continue;
    TRY_ASSIGN(const auto stream, open({blobs_[blobs_.size() - 1 - layer]}));
    TarReader reader([&] { return stream->read(); });
    for (uint32_t index = table_.begin_of(layer); index < table_.end_of(layer); ++index) {
      TRY_ASSIGN(const auto entry, reader.next());
      if (!entry) return fail(ErrorKind::corrupt, "a layer changed between two readings");
      if (std::binary_search(first, last, index)) TRY(write_content(reader, *stream, index));
    }
    TRY(stream->drain());
  }
  return {};
}

Result<ImageBuilder::MadeFile> ImageBuilder::write_file(const std::string& path, const std::string& content) {
  LayerEntry entry;
  entry.kind = EntryKind::file;
  entry.mode = 0644;
  entry.mtime = options_.made_time;
  entry.size = content.size();
  if (!content.empty()) {
    TRY_ASSIGN(entry.data, writer_->begin_file(entry.size));
    TRY(writer_->append(content));
    TRY(writer_->end_file());
  }
  return MadeFile{path, table_.add_made(entry)};
}

Result<std::vector<ImageBuilder::MadeFile>> ImageBuilder::write_configuration(const ImageConfig& config,
                                                                              const std::string& source) {
  std::vector<MadeFile> files(4);
  TRY_ASSIGN(files[0], write_file("etc/rc", make_rc(config, source)));
  TRY_ASSIGN(files[1], write_file("etc/rc.local", make_rc_local()));
  TRY_ASSIGN(files[2], write_file("etc/fstab", make_fstab(config)));
  TRY_ASSIGN(files[3], write_file("etc/environment", make_environment(config)));
  return files;
}

/// Of very many files it is as much as the tree that comes now needs. Of fewer it stays: a file that is read again may
/// be one of them.
Result<void> ImageBuilder::forget_duplicates() {
  constexpr uint64_t kWorthIt = uint64_t{16} << 20U;
  if (duplicates_ < kWorthIt) return {};
  meter_.give_back(std::exchange(duplicates_, 0));
  return writer_->forget_duplicates();
}

uint64_t ImageBuilder::count_dead(const RootTree& tree) const {
  const std::vector<bool> used = tree.used();
  uint64_t dead = 0;
  for (uint32_t i = 0; i < table_.size(); ++i) {
    const LayerEntry& entry = table_.entry(i);
    if (!used[i] && entry.kind == EntryKind::file && entry.data != kNone) dead += entry.size;
  }
  return dead;
}

}  // namespace situla
