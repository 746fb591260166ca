#include "hooks/import/layer_table.hpp"

#include <algorithm>

#include "common/base/text.hpp"

namespace situla {
namespace {

constexpr size_t kMaxName = 255;
constexpr size_t kMaxPath = 4095;
constexpr size_t kMaxEntries = 100'000'000;

Error bad_entry(const TarEntry& entry, const std::string& why) {
  return {ErrorKind::corrupt, "entry '" + printable(std::string_view(entry.path).substr(0, 300)) + "': " + why};
}

Result<void> check_names(const TarEntry& entry, std::string_view cleaned) {
  if (cleaned.size() > kMaxPath) return fail(bad_entry(entry, "the path is longer than 4095 bytes"));
  // A whiteout never becomes a file: what counts is the name of what it hides.
  const size_t last = cleaned.rfind('/') + 1;
  for (const std::string_view name : split(cleaned, '/')) {
    const bool whiteout = name.data() == cleaned.data() + last && name.starts_with(kWhiteoutPrefix);
    if (name.size() > kMaxName + (whiteout ? kWhiteoutPrefix.size() : 0))
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

uint32_t LayerTable::intern_directory(std::string_view path) {
  if (last_directory_ != kNone && directories_[last_directory_] == path) return last_directory_;
  const auto found = directory_ids_.find(path);
  if (found != directory_ids_.end()) return last_directory_ = found->second;
  last_directory_ = static_cast<uint32_t>(directories_.size());
  directories_.emplace_back(path);
  directory_ids_.emplace(directories_.back(), last_directory_);
  return last_directory_;
}

Result<uint32_t> LayerTable::add(const TarEntry& entry) {
  const std::string cleaned = clean_path(entry.path);
  TRY(check_names(entry, cleaned));
  if (full()) return fail(ErrorKind::unsupported, "the image has too many entries");
  const size_t slash = cleaned.rfind('/');
  LayerEntry record;
  record.directory =
      intern_directory(slash == std::string::npos ? std::string_view() : std::string_view(cleaned).substr(0, slash));
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
  const std::string_view directory = directories_[entry.directory];
  std::string path(directory);
  if (!directory.empty()) path += '/';
  path += texts_.get(entry.name);
  return path;
}

}  // namespace situla
