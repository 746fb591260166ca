// What does the root file system look like when all layers lie upon each other? Names and inodes, without content.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "hooks/squashfs/keyed_hash.hpp"
#include "hooks/squashfs/layer_table.hpp"
#include "hooks/squashfs/piece_list.hpp"

namespace situla {

/// The merged tree, by the rules of the OCI image-spec (layer.md) as `umoci unpack` applies them: whiteouts hide only
/// what lower layers have, a directory upon a directory changes its metadata only, everything else replaces. A path is
/// resolved inside the tree being built, with its symlinks, as a chroot would: nothing can point outside, because there
/// is no outside.
class RootTree {
 public:
  struct Node {
    uint32_t parent = 0;
    TextArena::Ref name = 0;
    uint32_t inode = kNone;  ///< index in the LayerTable; kNone = dead
    uint32_t first_child = kNone;
    uint32_t next_sibling = kNone;
    uint32_t layer = 0;  ///< the layer that touched it last; ancestors of what it touched included
  };
  static constexpr uint32_t kRoot = 0;

  explicit RootTree(LayerTable& table);

  /// Applies a layer of the table upon what is there. Lower layers first. `cancelled`, if any, is asked now and then.
  Result<void> apply(size_t layer, const std::function<bool()>& cancelled = nullptr);
  /// Puts an inode at a path, making directories (mode 0755) on the way, following links; replaces what is there.
  Result<void> place(std::string_view path, uint32_t inode);
  /// Makes a directory and its parents unless they exist.
  Result<void> make_directories(std::string_view path);

  // Name by name, for trees that come from no archive: no paths, links or whiteouts.
  /// The node of a name in a directory; kNone if there is none.
  [[nodiscard]] uint32_t child(uint32_t directory, std::string_view name) const { return lookup(directory, name); }
  /// Gives a name an inode: a directory upon a directory keeps the children, everything else replaces. Returns the
  /// node.
  Result<uint32_t> put(uint32_t directory, std::string_view name, uint32_t inode);
  void put_root(uint32_t inode) { nodes_[kRoot].inode = inode; }
  void remove(uint32_t node) { kill(node); }
  void remove_children(uint32_t directory);

  /// COMPAT.md 5: removes what is beneath /dev and every device node, and makes unreadable directories u+rwX.
  void finish();
  /// As enroot's fixperms() does with what it imports: some distributions rely on CAP_DAC_OVERRIDE, which the user, who
  /// owns all of it, need not have. He may read every file, execute what anybody may, and write to directories of the
  /// upper levels. What AUFS kept in layers for itself goes.
  void open_to_owner();

  [[nodiscard]] const Node& node(uint32_t index) const { return nodes_[index]; }
  [[nodiscard]] const LayerTable& table() const { return table_; }
  [[nodiscard]] bool is_directory(uint32_t index) const {
    return table_.entry(nodes_[index].inode).kind == EntryKind::directory;
  }
  /// Live children, sorted by the bytes of their names.
  [[nodiscard]] std::vector<uint32_t> children(uint32_t directory) const;
  [[nodiscard]] std::string_view name(uint32_t index) const { return table_.text(nodes_[index].name); }
  /// Which inodes of the table live names lead to.
  [[nodiscard]] std::vector<bool> used() const;
  /// Entries of visible regular files whose content was not written, in order.
  [[nodiscard]] std::vector<uint32_t> files_without_data() const;

 private:
  enum class Missing { fail, make };

  Result<void> apply_entry(uint32_t index);
  Result<void> apply_link(uint32_t directory, const LayerEntry& entry);
  Result<void> apply_whiteout(const LayerEntry& entry, std::string_view name);
  void remove_lower(uint32_t index);
  void remove_lower_children(uint32_t directory);
  void kill(uint32_t index);
  uint32_t lookup(uint32_t parent, std::string_view name) const;
  Result<uint32_t> add_node(uint32_t parent, std::string_view name, TextArena::Ref ref, uint32_t inode);
  Result<uint32_t> set_child(uint32_t directory, TextArena::Ref name, uint32_t inode);
  Result<uint32_t> make_directory(uint32_t parent, std::string_view name);
  void touch(uint32_t index);
  /// Directory at a path; kNone if it is missing and not to be made.
  Result<uint32_t> walk(std::string_view path, Missing missing);
  /// A path, or the target of a link, has so many names to be looked up.
  Result<void> count_steps(std::string_view path, size_t names);
  void insert_slot(uint32_t index);
  void grow();
  [[nodiscard]] size_t slot_of(uint32_t parent, std::string_view name) const;

  LayerTable& table_;
  PieceList<Node> nodes_;
  std::vector<uint32_t> slots_;                                 ///< open addressing by (parent, name)
  static constexpr uint64_t kSlotBytes = 4 * sizeof(uint32_t);  // half empty, and twice as many while they grow
  size_t used_slots_ = 0;
  KeyedHash hash_;
  uint64_t steps_ = 0;  ///< names looked up by walk(), and what takes as long
  uint32_t layer_ = 0;
  // The directory of the last entry: archives list a directory's entries together.
  uint32_t cached_path_ = kNone, cached_node_ = kNone;
};

}  // namespace situla
