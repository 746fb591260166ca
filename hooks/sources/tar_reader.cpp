// The only file that includes archive.h.
#include "hooks/sources/tar_reader.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <archive.h>
#include <archive_entry.h>
#include <locale.h>

#include "common/base/text.hpp"

namespace situla {
namespace {

constexpr size_t kRecord = 512;  // bytes; headers and contents begin at multiples of it
/// Of the headers of one entry, and of the map of a sparse file, of which libarchive makes twelve times as much memory.
constexpr uint64_t kMostHeaderBytes = uint64_t{2} << 20U;

/// libarchive converts the UTF-8 of pax headers to the locale of the calling thread. In the C locale it keeps the bytes
/// and only warns; in a UTF-8 locale it would turn decomposed characters into composed ones, and the file would have
/// another name.
class BytesAsTheyAre {
 public:
  BytesAsTheyAre() : c_(newlocale(LC_ALL_MASK, "C", nullptr)), before_(uselocale(c_)) {}
  BytesAsTheyAre(const BytesAsTheyAre&) = delete;
  BytesAsTheyAre& operator=(const BytesAsTheyAre&) = delete;
  ~BytesAsTheyAre() {
    uselocale(before_);
    freelocale(c_);
  }

 private:
  locale_t c_, before_;
};

EntryKind kind_of(archive_entry* entry) {
  // libarchive takes the target of a symlink for a hard link's if only the pax header has it, which is how Go writes
  // targets without an ASCII character. A real hard link never has the type of a symlink.
  const bool symlink = archive_entry_filetype(entry) == AE_IFLNK;
  if (archive_entry_hardlink(entry) != nullptr && !symlink) return EntryKind::hardlink;
  switch (archive_entry_filetype(entry)) {
    case AE_IFDIR:
      return EntryKind::directory;
    case AE_IFLNK:
      return EntryKind::symlink;
    case AE_IFIFO:
      return EntryKind::fifo;
    case AE_IFCHR:
    case AE_IFBLK:
    case AE_IFSOCK:
      return EntryKind::device;
    default:
      return EntryKind::file;
  }
}

void read_xattrs(archive_entry* entry, TarEntry& result) {
  archive_entry_xattr_reset(entry);
  const char* name = nullptr;
  const void* value = nullptr;
  size_t size = 0;
  while (archive_entry_xattr_next(entry, &name, &value, &size) == ARCHIVE_OK)
    result.xattrs.emplace_back(name, std::string(static_cast<const char*>(value), size));
  // libarchive lists them last to first.
  std::sort(result.xattrs.begin(), result.xattrs.end());
}

}  // namespace

struct TarReader::State {
  Source source;
  Skip skip;
  archive* reader = archive_read_new();
  archive_entry* entry = nullptr;
  uint64_t size = 0;
  uint64_t received = 0;      ///< bytes of the source
  uint64_t content_end = 0;   ///< of the current entry, in the source
  uint64_t header_bytes = 0;  ///< of the source, since the last entry or the last piece of its content
  bool counts = false;        ///< header_bytes; not while content is passed over
  bool entered = false;       ///< there is an entry, and maybe content of it
  bool padded = false;
  std::optional<Error> source_error;
  BytesAsTheyAre bytes_as_they_are;

  ~State() { archive_read_free(reader); }

  static la_ssize_t read(archive* reader, void* user, const void** buffer) {
    auto& state = *static_cast<State*>(user);
    auto bytes = state.source();
    if (!bytes) {
      state.source_error = std::move(bytes).error();
      archive_set_error(reader, -1, "source");
      return -1;
    }
    if (bytes->empty() && !std::exchange(state.padded, true)) {
      // Some tools, umoci among them, end the archive right behind the last content; Go's reader does not mind.
      static constexpr std::array<char, kRecord> kZeros{};
      const uint64_t next_header = (state.content_end + kRecord - 1) / kRecord * kRecord;
      const bool whole = state.received >= state.content_end && state.received < next_header;
      *buffer = kZeros.data();
      return whole ? static_cast<la_ssize_t>(next_header - state.received) : 0;
    }
    state.received += bytes->size();
    // What came with the piece before does not count, nor does the rest of this piece.
    if (state.counts && state.header_bytes > kMostHeaderBytes) {
      state.source_error = Error(ErrorKind::corrupt,
                                 "read tar: the headers of an entry, or the map of a sparse file, "
                                 "have more than " +
                                     format_size(kMostHeaderBytes));
      archive_set_error(reader, -1, "headers");
      return -1;
    }
    state.header_bytes += bytes->size();
    *buffer = bytes->data();
    return static_cast<la_ssize_t>(bytes->size());
  }

  static la_int64_t pass_over(archive*, void* user, la_int64_t count) {
    auto& state = *static_cast<State*>(user);
    const uint64_t skipped = state.skip(static_cast<uint64_t>(count));
    state.received += skipped;
    return static_cast<la_int64_t>(skipped);
  }

  [[nodiscard]] Error error() const {
    if (source_error) return *source_error;
    const char* text = archive_error_string(reader);
    return Error(ErrorKind::corrupt, std::string("read tar: ") + excerpt(text == nullptr ? "damaged archive" : text))
        .with_code(ErrorCode::image_damaged)
        .with_hint("the layer was not written correctly: push the image again");
  }
};

TarReader::TarReader(Source source, Skip skip) : state_(std::make_unique<State>()) {
  state_->source = std::move(source);
  state_->skip = std::move(skip);
  archive_read_support_format_tar(state_->reader);
  archive_read_support_format_empty(state_->reader);
  archive_read_open2(state_->reader, state_.get(), nullptr, State::read, state_->skip ? State::pass_over : nullptr,
                     nullptr);
}

TarReader::~TarReader() = default;

Result<std::optional<TarEntry>> TarReader::next() {
  State& state = *state_;
  if (std::exchange(state.entered, false)) archive_read_data_skip(state.reader);
  if (state.source_error) return fail(state.error());
  state.header_bytes = 0;
  state.counts = true;
  const int code = archive_read_next_header(state.reader, &state.entry);
  if (state.source_error) return fail(state.error());
  if (code == ARCHIVE_EOF) return std::nullopt;
  // A warning is about names that are not of the C locale, which are taken as they are.
  if (code != ARCHIVE_OK && code != ARCHIVE_WARN) return fail(state.error());
  state.counts = false;
  state.entered = true;
  archive_entry* entry = state.entry;
  TarEntry result;
  const char* path = archive_entry_pathname(entry);
  if (path == nullptr) return fail(ErrorKind::corrupt, "read tar: an entry without a name");
  result.path = path;
  result.kind = kind_of(entry);
  result.mode = static_cast<uint16_t>(archive_entry_perm(entry) & 07777U);
  result.mtime = archive_entry_mtime(entry);
  if (result.kind == EntryKind::file)
    result.size = static_cast<uint64_t>(std::max<la_int64_t>(0, archive_entry_size(entry)));
  state.size = result.size;
  result.offset = static_cast<uint64_t>(archive_filter_bytes(state.reader, 0));
  result.sparse = archive_entry_sparse_count(entry) > 0;
  state.content_end = result.sparse ? 0 : result.offset + result.size;
  if (result.kind == EntryKind::hardlink || result.kind == EntryKind::symlink) {
    const char* target = archive_entry_symlink(entry);
    if (target == nullptr) target = archive_entry_hardlink(entry);
    if (target == nullptr) return fail(ErrorKind::corrupt, "read tar: a link without a target");
    result.target = target;
  }
  read_xattrs(entry, result);
  return result;
}

Result<void> TarReader::read_data(const Sink& sink, const Hole& hole) {
  static constexpr std::array<char, 65536> kZeros{};
  State& state = *state_;
  uint64_t position = 0;
  state.counts = true;
  const auto fill_to = [&](uint64_t end) -> Result<void> {
    if (hole && position < end) TRY(hole(end - position));
    while (position < end) {
      const auto size = static_cast<size_t>(std::min<uint64_t>(end - position, kZeros.size()));
      TRY(sink({kZeros.data(), size}));
      position += size;
    }
    return {};
  };
  while (true) {
    const void* data = nullptr;
    size_t size = 0;
    la_int64_t offset = 0;
    state.header_bytes = 0;
    const int code = archive_read_data_block(state.reader, &data, &size, &offset);
    if (code == ARCHIVE_EOF) break;
    if (state.source_error || (code != ARCHIVE_OK && code != ARCHIVE_WARN)) return fail(state.error());
    if (offset < 0 || static_cast<uint64_t>(offset) < position || static_cast<uint64_t>(offset) + size > state.size)
      return fail(ErrorKind::corrupt, "read tar: the content of a file is out of order");
    TRY(fill_to(static_cast<uint64_t>(offset)));
    if (size > 0) TRY(sink({static_cast<const char*>(data), size}));
    position += size;
  }
  state.counts = false;
  return fill_to(state.size);
}

}  // namespace situla
