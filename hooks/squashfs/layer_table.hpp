// Which entries did the layers have? Every tar entry of every layer in the order of the archive, in about sixty bytes
// each.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "hooks/squashfs/budget.hpp"
#include "hooks/squashfs/keyed_hash.hpp"
#include "hooks/squashfs/piece_list.hpp"
#include "hooks/squashfs/tar_entry.hpp"
#include "hooks/squashfs/text_arena.hpp"

namespace situla {

constexpr uint32_t kNone = 0xFFFFFFFFU;

/// One entry. Also an inode of the final tree: names are separate (RootTree).
struct LayerEntry {
  uint32_t directory = 0;   ///< LayerTable::directory(): cleaned path of the parent, "" for the root
  TextArena::Ref name = 0;  ///< last component; "" for the root itself
  EntryKind kind = EntryKind::file;
  uint16_t mode = 0;        ///< octal 07777
  uint32_t mtime = 0;       ///< seconds; clamped to what squashfs holds
  uint32_t xattrs = kNone;  ///< of the squashfs writer
  uint32_t data =
      kNone;  ///< file: of the squashfs writer, kNone = not written (yet); symlink, hardlink: TextArena::Ref
  uint64_t size = 0;
};

class LayerTable {
 public:
  /// meter: what the entries and everything made of them is taken from; null: a tree that nobody strange made.
  explicit LayerTable(ImportMeter* meter = nullptr) : meter_(meter), directory_slots_(1024, kNone) {}

  /// Cleans the path as `filepath.Clean("/" + path)` does: hostile "..", "//" and leading '/' stay inside.
  /// ErrorKind::corrupt for names over 255 bytes, paths over 4095 and targets over 4095.
  Result<uint32_t> add(const TarEntry& entry);
  /// Whether there is no room for another entry.
  [[nodiscard]] bool full() const;
  /// An entry that no tar had.
  uint32_t add_made(LayerEntry entry);

  /// Layers are added from the top of the image down; merging goes the other way.
  void begin_layer() { begins_.push_back(static_cast<uint32_t>(entries_.size())); }
  void end_layer() { ends_.push_back(static_cast<uint32_t>(entries_.size())); }
  [[nodiscard]] size_t layers() const { return ends_.size(); }
  [[nodiscard]] uint32_t begin_of(size_t layer) const { return begins_[layer]; }
  [[nodiscard]] uint32_t end_of(size_t layer) const { return ends_[layer]; }

  [[nodiscard]] LayerEntry& entry(uint32_t index) { return entries_[index]; }
  [[nodiscard]] const LayerEntry& entry(uint32_t index) const { return entries_[index]; }
  [[nodiscard]] size_t size() const { return entries_.size(); }
  /// Their number; the next one gets it.
  [[nodiscard]] size_t directories() const { return directories_.size(); }
  [[nodiscard]] std::string_view directory(uint32_t id) const { return texts_.get(directories_[id]); }
  [[nodiscard]] std::string_view text(TextArena::Ref ref) const { return texts_.get(ref); }
  [[nodiscard]] std::string path(const LayerEntry& entry) const;

  Result<uint32_t> intern_directory(std::string_view path);
  Result<TextArena::Ref> add_text(std::string_view text) { return texts_.add(text); }

  /// Memory for what is made of the entries.
  Result<void> take_memory(uint64_t bytes) { return meter_ == nullptr ? Result<void>() : meter_->take_memory(bytes); }
  void give_back(uint64_t bytes) const {
    if (meter_ != nullptr) meter_->give_back(bytes);
  }

 private:
  [[nodiscard]] size_t directory_slot(std::string_view path) const;
  Result<void> take(const TarEntry& entry, std::string_view cleaned);

  ImportMeter* meter_;
  PieceList<LayerEntry> entries_;
  std::vector<uint32_t> begins_, ends_;
  TextArena texts_;
  PieceList<TextArena::Ref> directories_;
  std::vector<uint32_t> directory_slots_;  ///< open addressing by the path
  KeyedHash hash_;
  uint32_t last_directory_ = kNone;
};

/// "a/b/c" without leading slash, "." and "..".
std::string clean_path(std::string_view path);

constexpr std::string_view kWhiteoutPrefix = ".wh.";
constexpr std::string_view kOpaqueWhiteout = ".wh..wh..opq";

}  // namespace situla
