#include "hooks/squashfs/layer_table.hpp"

#include <algorithm>
#include <climits>

#include "common/base/text.hpp"

namespace situla {
namespace {

constexpr size_t kMaxPath = 4095;
constexpr size_t kMaxEntries = 100'000'000;

Error bad_entry(const TarEntry& entry, const std::string& why) {
  return {ErrorKind::corrupt, "entry '" + excerpt(entry.path) + "': " + why};
}

Result<void> check_names(const TarEntry& entry, std::string_view cleaned) {
  if (cleaned.size() > kMaxPath) return fail(bad_entry(entry, "the path is longer than 4095 bytes"));
  // A whiteout never becomes a file: what counts is the name of what it hides.
  const size_t last = cleaned.rfind('/') + 1;
  for (const std::string_view name : split(cleaned, '/')) {
    const bool whiteout = name.data() == cleaned.data() + last && name.starts_with(kWhiteoutPrefix);
    if (name.size() > size_t{NAME_MAX} + (whiteout ? kWhiteoutPrefix.size() : 0))
      return fail(bad_entry(entry, "a name is longer than 255 bytes"));
  }
  if (entry.target.size() > kMaxPath) return fail(bad_entry(entry, "the link target is longer than 4095 bytes"));
  return {};
}

}  // namespace

std::string clean_path(std::string_view path) {
  std::string cleaned;
  cleaned.reserve(path.size());
  while (!path.empty()) {
    const size_t slash = std::min(path.find('/'), path.size());
    const std::string_view component = path.substr(0, slash);
    path.remove_prefix(std::min(slash + 1, path.size()));
    if (component.empty() || component == ".") continue;
    if (component == "..") {
      cleaned.resize(cleaned.find('/') == std::string::npos ? 0 : cleaned.rfind('/'));
      continue;
    }
    if (!cleaned.empty()) cleaned += '/';
    cleaned += component;
  }
  return cleaned;
}

size_t LayerTable::directory_slot(std::string_view path) const {
  const size_t mask = directory_slots_.size() - 1;
  size_t slot = hash_(path) & mask;
  while (directory_slots_[slot] != kNone && directory(directory_slots_[slot]) != path) slot = (slot + 1) & mask;
  return slot;
}

Result<uint32_t> LayerTable::intern_directory(std::string_view path) {
  if (last_directory_ != kNone && directory(last_directory_) == path) return last_directory_;
  if (2 * (directories_.size() + 1) > directory_slots_.size()) {
    std::vector<uint32_t> old(directory_slots_.size() * 2, kNone);
    old.swap(directory_slots_);
    for (const uint32_t id : old)
      if (id != kNone) directory_slots_[directory_slot(directory(id))] = id;
  }
  const size_t slot = directory_slot(path);
  if (directory_slots_[slot] == kNone) {
    TRY_ASSIGN(const TextArena::Ref text, texts_.add(path));
    directory_slots_[slot] = static_cast<uint32_t>(directories_.size());
    directories_.push_back(text);
  }
  return last_directory_ = directory_slots_[slot];
}

/// Before anything is kept. A directory counts with the first entry in it, or with one that comes back to it.
Result<void> LayerTable::take(const TarEntry& entry, std::string_view cleaned) {
  constexpr uint64_t kDirectoryBytes = 40;  // its record, its slots, and what HiddenPaths knows of it
  if (meter_ == nullptr) return {};
  TRY(meter_->take_entry());
  const size_t slash = cleaned.rfind('/');
  const std::string_view directory = slash == std::string_view::npos ? std::string_view() : cleaned.substr(0, slash);
  uint64_t bytes = sizeof(LayerEntry) + sizeof(uint16_t) + cleaned.size() - directory.size();
  if (entry.kind == EntryKind::symlink || entry.kind == EntryKind::hardlink)
    bytes += sizeof(uint16_t) + entry.target.size();
  const bool same = last_directory_ != kNone && this->directory(last_directory_) == directory;
  if (!same && directory_slots_[directory_slot(directory)] == kNone) bytes += kDirectoryBytes + directory.size();
  return meter_->take_memory(bytes);
}

Result<uint32_t> LayerTable::add(const TarEntry& entry) {
  const std::string cleaned = clean_path(entry.path);
  TRY(check_names(entry, cleaned));
  TRY(take(entry, cleaned));
  if (full()) return fail(ErrorKind::unsupported, "the image has too many entries");
  const size_t slash = cleaned.rfind('/');
  LayerEntry record;
  TRY_ASSIGN(
      record.directory,
      intern_directory(slash == std::string::npos ? std::string_view() : std::string_view(cleaned).substr(0, slash)));
  TRY_ASSIGN(record.name, texts_.add(slash == std::string::npos ? std::string_view(cleaned)
                                                                : std::string_view(cleaned).substr(slash + 1)));
  record.kind = entry.kind;
  // Archives have all sorts of modes for symlinks; a file system made from them has only this one.
  record.mode = entry.kind == EntryKind::symlink ? uint16_t{0777} : entry.mode;
  record.mtime = static_cast<uint32_t>(std::clamp<int64_t>(entry.mtime, 0, UINT32_MAX));
  record.size = entry.size;
  if (entry.kind == EntryKind::symlink || entry.kind == EntryKind::hardlink) {
    TRY_ASSIGN(record.data, texts_.add(entry.target));
  }
  return add_made(record);
}

bool LayerTable::full() const {
  return texts_.full() || entries_.size() >= kMaxEntries;
}

uint32_t LayerTable::add_made(LayerEntry entry) {
  entries_.push_back(entry);
  return static_cast<uint32_t>(entries_.size() - 1);
}

std::string LayerTable::path(const LayerEntry& entry) const {
  const std::string_view directory = this->directory(entry.directory);
  std::string path(directory);
  if (!directory.empty()) path += '/';
  path += texts_.get(entry.name);
  return path;
}

}  // namespace situla
