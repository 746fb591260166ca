#include "hooks/import/image_builder.hpp"

#include <algorithm>
#include <array>

#include "common/base/text.hpp"

namespace situla {
namespace {

/// Attributes that are not the image's to set. overlay's own would make names disappear under our overlay; an SELinux
/// label belongs to the host's policy, and umoci drops it too.
bool keeps_xattr(std::string_view name) {
  return !name.starts_with("trusted.overlay.") && !name.starts_with("user.overlay.") && name != "security.selinux" &&
         name.find('\0') == std::string_view::npos;
}

bool beneath_dev(std::string_view directory) {
  return directory == "dev" || directory.starts_with("dev/");
}

}  // namespace

ImageBuilder::ImageBuilder(int fd, std::string where, SquashOptions options, std::vector<Blob> blobs)
    : fd_(fd), where_(std::move(where)), options_(options), blobs_(std::move(blobs)) {}

Result<BuiltImage> ImageBuilder::build(const StreamOpener& open, const ImageConfig& config, const std::string& source) {
  TRY_ASSIGN(writer_, SquashfsWriter::create(fd_, where_, options_, trace_));
  turns_ = TraceTurns(trace_, "tar", "compress");
  const std::vector<Blob> from_top(blobs_.rbegin(), blobs_.rend());
  BuiltImage built;
  {
    TRY_ASSIGN(const auto stream, open(from_top));
    stream->on_wait([&] { report(*stream); });
    for (const Blob& blob : from_top) TRY(read_layer(*stream, blob));
    built.unpacked_bytes = stream->unpacked_bytes();
  }
  const TraceSpan span(trace_, "merge and write inodes");
  RootTree tree(table_);
  for (size_t layer = table_.layers(); layer-- > 0;) TRY_CONTEXT(from_top[layer].name, tree.apply(layer));
  TRY(add_configuration(tree, config, source));
  tree.finish();
  if (const auto missing = tree.files_without_data(); !missing.empty()) TRY(reread(open, missing));
  built.dead_bytes = count_dead(tree);
  TRY_ASSIGN(built.image_bytes, writer_->finish(tree));
  return built;
}

/// A damaged stream is reported by the stream, which names the layer; everything else here. An archive that cannot be
/// read is no news when the layer turns out to have another digest.
Error ImageBuilder::cause_of(Error error, LayerStream& stream, const Blob& blob) {
  if (error.message().starts_with(blob.name)) return error;
  if (error.kind() == ErrorKind::corrupt)
    if (auto rest = stream.drain(); !rest) return std::move(rest).error();
  return std::move(error).with_context(blob.name);
}

/// The layer being read, and those that are being decompressed ahead of it.
void ImageBuilder::report(const LayerStream& stream, bool finished) {
  if (progress_ == nullptr) return;
  const size_t layer = table_.layers();
  const size_t last = finished ? layer : std::min(stream.furthest_blob(), blobs_.size() - 1);
  for (size_t i = layer; i <= last; ++i) {
    const Blob& blob = blobs_[blobs_.size() - 1 - i];
    progress_->layer({i, blob.name, stream.compressed_bytes_of(i), blob.size, finished});
  }
  uint64_t total = 0;
  for (const Blob& blob : blobs_) total += blob.size;
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
  const size_t layer = table_.layers();
  while (true) {
    auto entry = reader.next();
    if (!entry) return fail(cause_of(std::move(entry).error(), stream, blob));
    if (!*entry) break;
    if (auto done = read_entry(reader, **entry, layer); !done)
      return fail(cause_of(std::move(done).error(), stream, blob));
  }
  turns_.cut(blob.name);
  TRY(stream.drain());
  report(stream, true);
  table_.end_layer();
  if (layer + 1 < blobs_.size()) hidden_.add_layer(table_, layer);
  return {};
}

Result<void> ImageBuilder::read_entry(TarReader& reader, const TarEntry& entry, size_t) {
  TRY_ASSIGN(const uint32_t index, table_.add(entry));
  const std::string_view directory = table_.directory(table_.entry(index).directory);
  const std::string_view name = table_.text(table_.entry(index).name);
  std::vector<std::pair<std::string, std::string>> kept;
  for (const auto& xattr : entry.xattrs)
    if (keeps_xattr(xattr.first)) kept.push_back(xattr);
  if (!kept.empty() && entry.kind != EntryKind::hardlink) {
    TRY_ASSIGN(table_.entry(index).xattrs, writer_->add_xattrs(kept));
  }
  if (entry.kind != EntryKind::file || entry.size == 0 || name.starts_with(kWhiteoutPrefix)) return {};
  if (beneath_dev(directory) || hidden_.hides(directory, name)) return {};
  return write_content(reader, index);
}

Result<void> ImageBuilder::write_content(TarReader& reader, uint32_t index) {
  TRY_ASSIGN(table_.entry(index).data, turns_.second([&] { return writer_->begin_file(table_.entry(index).size); }));
  TRY(reader.read_data(
      [this](std::string_view bytes) { return turns_.second([&] { return writer_->append(bytes); }); }));
  return turns_.second([this] { return writer_->end_file(); });
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
      if (std::binary_search(first, last, index)) TRY(write_content(reader, index));
    }
    TRY(stream->drain());
  }
  return {};
}

Result<void> ImageBuilder::add_file(RootTree& tree, const std::string& path, const std::string& content,
                                    uint16_t mode) {
  LayerEntry entry;
  entry.kind = EntryKind::file;
  entry.mode = mode;
  entry.mtime = options_.made_time;
  entry.size = content.size();
  if (!content.empty()) {
    TRY_ASSIGN(entry.data, writer_->begin_file(entry.size));
    TRY(writer_->append(content));
    TRY(writer_->end_file());
  }
  return tree.place(path, table_.add_made(entry));
}

Result<void> ImageBuilder::add_configuration(RootTree& tree, const ImageConfig& config, const std::string& source) {
  TRY(add_file(tree, "etc/rc", make_rc(config, source), 0644));
  TRY(add_file(tree, "etc/rc.local", make_rc_local(), 0644));
  TRY(add_file(tree, "etc/fstab", make_fstab(config), 0644));
  TRY(add_file(tree, "etc/environment", make_environment(config), 0644));
  if (!config.workdir.empty())
    TRY_CONTEXT("make the working directory", tree.make_directories(clean_path(config.workdir)));
  return {};
}

uint64_t ImageBuilder::count_dead(const RootTree& tree) const {
  std::vector<bool> used(table_.size(), false);
  std::vector<uint32_t> open{RootTree::kRoot};
  while (!open.empty()) {
    const uint32_t node = open.back();
    open.pop_back();
    used[tree.node(node).inode] = true;
    if (!tree.is_directory(node)) continue;
    const std::vector<uint32_t> children = tree.children(node);
    open.insert(open.end(), children.begin(), children.end());
  }
  uint64_t dead = 0;
  for (uint32_t i = 0; i < table_.size(); ++i) {
    const LayerEntry& entry = table_.entry(i);
    if (!used[i] && entry.kind == EntryKind::file && entry.data != kNone) dead += entry.size;
  }
  return dead;
}

}  // namespace situla
