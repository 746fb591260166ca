#include "hooks/import/layer_index.hpp"

#include <unordered_map>

#include <sys/stat.h>

#include "common/base/wire.hpp"
#include "common/sys/file.hpp"

namespace situla {
namespace {

constexpr WireForm kHead{.what = "layer index", .version = 0x534c4903, .most_bytes = 8192};
constexpr size_t kDigestBytes = 64;  // hexadecimal
constexpr size_t kEntriesAtOnce = 4096;

// The first byte of an entry: its kind, and these.
constexpr uint8_t kOtherDirectory = 0x10;
constexpr uint8_t kStored = 0x20;
constexpr uint8_t kXattrs = 0x40;
constexpr uint8_t kEnd = 0xFF;

void put(Encoder& out, const Seal& seal) {
  for (const uint64_t part : seal) out.u64(part);
}

void get(Decoder& in, Seal& seal) {
  for (uint64_t& part : seal) part = in.u64();
}

/// A fragment's seal comes with the first file that lies in it.
void put(Encoder& out, const StoredFile& file, std::unordered_set<uint32_t>& sealed) {
  out.u64(file.start);
  out.u64(file.sparse);
  out.u32(file.fragment);
  if (file.fragment != StoredFile::kNoFragment) out.u32(file.fragment_offset);
  out.u32(static_cast<uint32_t>(file.blocks.size()));
  for (const uint32_t block : file.blocks) out.u32(block);
  if (!file.blocks.empty()) put(out, file.seal);
  if (file.fragment != StoredFile::kNoFragment && sealed.insert(file.fragment).second) put(out, file.fragment_seal);
}

void get(Decoder& in, StoredFile& file, std::unordered_map<uint32_t, Seal>& sealed) {
  file.start = in.u64();
  file.sparse = in.u64();
  file.fragment = in.u32();
  file.fragment_offset = file.fragment != StoredFile::kNoFragment ? in.u32() : StoredFile::kNoFragment;
  const uint32_t blocks = in.u32();
  file.blocks.clear();
  for (uint32_t i = 0; i < blocks && in.ok(); ++i) file.blocks.push_back(in.u32());
  if (!file.blocks.empty()) get(in, file.seal);
  if (file.fragment == StoredFile::kNoFragment) return;
  const auto [found, fresh] = sealed.try_emplace(file.fragment);
  if (fresh) get(in, found->second);
  file.fragment_seal = found->second;
}

bool has_target(EntryKind kind) {
  return kind == EntryKind::symlink || kind == EntryKind::hardlink;
}

}  // namespace

Result<FileIdentity> FileIdentity::of(int fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return fail_errno(errno, "stat");
  return FileIdentity{status.st_ino, static_cast<uint64_t>(status.st_size),
                      static_cast<uint64_t>(status.st_mtim.tv_sec), static_cast<uint64_t>(status.st_mtim.tv_nsec)};
}

LayerIndexWriter::LayerIndexWriter(const LayerIndexHead& head, Sink sink) : sink_(std::move(sink)) {
  out_.text(to_wire(head, kHead));
}

Result<void> LayerIndexWriter::flush() {
  const std::string bytes = out_.take();
  waiting_ = 0;
  hash_.update(bytes);
  return sink_(bytes);
}

Result<void> LayerIndexWriter::add(const IndexedEntry& indexed) {
  const TarEntry& entry = indexed.entry;
  const size_t slash = entry.path.rfind('/');
  const std::string directory = slash == std::string::npos ? "" : entry.path.substr(0, slash);
  auto flags = static_cast<uint8_t>(entry.kind);
  if (directory != directory_) flags |= kOtherDirectory;
  if (indexed.stored) flags |= kStored;
  if (!entry.xattrs.empty()) flags |= kXattrs;
  out_.u8(flags);
  if (directory != directory_) out_.text(directory_ = directory);
  out_.text(slash == std::string::npos ? entry.path : std::string_view(entry.path).substr(slash + 1));
  out_.u32(entry.mode);
  out_.u64(static_cast<uint64_t>(entry.mtime));
  if (has_target(entry.kind)) out_.text(entry.target);
  if (entry.kind == EntryKind::file) out_.u64(entry.size);
  if (!entry.xattrs.empty()) out_.u32(static_cast<uint32_t>(entry.xattrs.size()));
  for (const auto& [name, value] : entry.xattrs) {
    out_.text(name);
    out_.text(value);
  }
  if (indexed.stored) put(out_, indexed.content, fragments_);
  // A set of attributes counts as the entries that it is as large as.
  constexpr size_t kEntryBytes = 256;
  for (const auto& [name, value] : entry.xattrs) waiting_ += (name.size() + value.size()) / kEntryBytes;
  return ++waiting_ < kEntriesAtOnce ? Result<void>() : flush();
}

Result<void> LayerIndexWriter::finish() {
  out_.u8(kEnd);
  TRY(flush());
  return sink_(hash_.finish().hex());
}

Result<LayerIndex> LayerIndex::read(const std::string& path) {
  TRY_ASSIGN(std::string bytes, read_file(path, kMostInMemory));
  auto index = parse(std::move(bytes));
  if (!index) return fail(std::move(index).error().with_context(path));
  return index;
}

Result<LayerIndex> LayerIndex::parse(std::string bytes) {
  const Error damaged(ErrorKind::corrupt, "not a layer index of this version, or a damaged one");
  if (bytes.size() < kDigestBytes) return fail(damaged);
  LayerIndex index;
  index.bytes_ = std::move(bytes);
  index.entries_end_ = index.bytes_.size() - kDigestBytes;
  const std::string_view content = std::string_view(index.bytes_).substr(0, index.entries_end_);
  if (digest_of(content).hex() != std::string_view(index.bytes_).substr(index.entries_end_)) return fail(damaged);
  Decoder in(content);
  auto head = from_wire<LayerIndexHead>(in.text(), kHead);
  if (!head) return fail(damaged);
  index.head_ = std::move(*head);
  index.entries_begin_ = index.entries_end_ - in.left();
  return index;
}

Result<void> LayerIndex::for_each(const std::function<Result<void>(IndexedEntry&)>& call) const {
  const Error damaged(ErrorKind::corrupt, "a damaged layer index");
  Decoder in(std::string_view(bytes_).substr(entries_begin_, entries_end_ - entries_begin_));
  std::string directory;
  std::unordered_map<uint32_t, Seal> fragments;
  while (true) {
    const uint8_t flags = in.u8();
    if (flags == kEnd) return in.finished() ? Result<void>() : fail(damaged);
    const uint8_t kind = flags & 0x0FU;
    if (!in.ok() || kind > static_cast<uint8_t>(EntryKind::device)) return fail(damaged);
    if ((flags & kOtherDirectory) != 0) directory = in.text();
    IndexedEntry indexed;
    TarEntry& entry = indexed.entry;
    entry.kind = static_cast<EntryKind>(kind);
    entry.path = directory.empty() ? "" : directory + "/";
    entry.path += in.text();
    entry.mode = static_cast<uint16_t>(in.u32());
    entry.mtime = static_cast<int64_t>(in.u64());
    if (has_target(entry.kind)) entry.target = in.text();
    if (entry.kind == EntryKind::file) entry.size = in.u64();
    const uint32_t xattrs = (flags & kXattrs) != 0 ? in.u32() : 0;
    for (uint32_t i = 0; i < xattrs && in.ok(); ++i) {
      std::string name(in.text());
      entry.xattrs.emplace_back(std::move(name), in.text());
    }
    indexed.stored = (flags & kStored) != 0;
    if (indexed.stored) get(in, indexed.content, fragments);
    indexed.content.size = entry.size;
    if (!in.ok()) return fail(damaged);
    TRY(call(indexed));
  }
}

}  // namespace situla
