// How do inodes and directories of a merged tree get into a squashfs file? Part of the adapter; only
// squashfs_writer.cpp includes it.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <sys/stat.h>

#include <sqfs/dir_writer.h>
#include <sqfs/inode.h>
#include <sqfs/meta_writer.h>

#include "common/base/result.hpp"
#include "hooks/squashfs/budget.hpp"
#include "hooks/squashfs/file_owners.hpp"
#include "hooks/squashfs/layout.hpp"
#include "hooks/squashfs/piece_list.hpp"
#include "hooks/squashfs/root_tree.hpp"

namespace situla {

/// What is left of an inode until the end: where its content lies.
struct FileData {
  sqfs_u64 start = 0, size = 0, sparse = 0;
  sqfs_u32 fragment = kNone, fragment_offset = kNone;
  uint32_t first_block = 0, blocks = 0;  ///< in the table of block sizes
};

/// FileData by number. Most files of an image of very many are a part of a fragment and nothing else: twelve bytes.
class FileTable {
 public:
  void add(const FileData& data) {
    const bool small = data.blocks == 0 && data.start == 0 && data.sparse == 0 && data.fragment != kNone &&
                       data.size < kLarge && data.fragment < kLarge;
    if (small) {
      records_.push_back({data.fragment, data.fragment_offset, static_cast<uint32_t>(data.size)});
      return;
    }
    records_.push_back({kLarge, static_cast<uint32_t>(large_.size()), 0});
    large_.push_back(data);
  }
  [[nodiscard]] FileData operator[](size_t number) const {
    const Record& record = records_[number];
    if (record.fragment == kLarge) return large_[record.place];
    FileData data;
    data.size = record.size;
    data.fragment = record.fragment;
    data.fragment_offset = record.place;
    return data;
  }
  [[nodiscard]] size_t size() const { return records_.size(); }

 private:
  static constexpr uint32_t kLarge = kNone - 1;
  struct Record {
    uint32_t fragment = kLarge, place = 0, size = 0;  ///< place: in the fragment, or for kLarge in large_
  };
  PieceList<Record> records_;
  PieceList<FileData> large_;
};

/// Inodes and directories, children before parents, without recursion: the depth is the image's choice.
class TreeWriter {
 public:
  using Check = std::function<Result<void>(int)>;

  struct Parts {
    sqfs_meta_writer_t* inodes;
    sqfs_dir_writer_t* directories;
    const FileTable* files;
    const PieceList<sqfs_u32>* block_sizes;
    std::function<sqfs_u32(const LayerEntry&)> time_of;
    Check check;
    ImportMeter* meter;           ///< may be null
    const sqfs_u64* names_bytes;  ///< compressed directories that wait for their place
    const FileOwners* owners;
  };

  TreeWriter(const RootTree& tree, Parts parts) : tree_(tree), parts_(std::move(parts)) {}

  Result<sqfs_u64> write() {
    // Numbers, links, and libsquashfs' table of inodes by number, which grows by doubling.
    constexpr uint64_t kInodeBytes = 2 * sizeof(sqfs_u32) + 2 * sizeof(sqfs_u64);
    TRY(take_memory(kInodeBytes * tree_.table().size()));
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
      TRY(take_memory(kMapBytes));
      references_.emplace(top.node, reference);
      open.pop_back();
    }
  }

  [[nodiscard]] sqfs_u32 inode_count() const { return inode_count_; }
  [[nodiscard]] sqfs_u32 root_number() const { return numbers_.at(tree_.node(RootTree::kRoot).inode); }

 private:
  static constexpr uint64_t kMapBytes = 56;  // of a number in a map

  Result<void> take_memory(uint64_t bytes) {
    return parts_.meter == nullptr ? Result<void>() : parts_.meter->take_memory(bytes);
  }
  void give_back(uint64_t bytes) {
    if (parts_.meter != nullptr) parts_.meter->give_back(bytes);
  }

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

  /// index: of the entry in the tree's table.
  void fill_base(sqfs_inode_generic_t& inode, const LayerEntry& entry, uint32_t type, uint32_t index) const {
    const FileOwners::Places owner = parts_.owners->of(index);
    inode.base.mode = static_cast<sqfs_u16>(type | entry.mode);
    inode.base.uid_idx = owner.uid;
    inode.base.gid_idx = owner.gid;
    inode.base.mod_time = parts_.time_of(entry);
    inode.base.inode_number = numbers_[index];
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

  Result<sqfs_u64> write_file(const LayerEntry& entry, uint32_t index, uint32_t links) {
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
    for (uint32_t i = 0; i < data.blocks; ++i) inode.extra[i] = (*parts_.block_sizes)[data.first_block + i];
    fill_base(inode, entry, S_IFREG, index);
    TRY(parts_.check(sqfs_inode_make_basic(&inode)));
    return put(inode);
  }

  Result<sqfs_u64> write_symlink(const LayerEntry& entry, uint32_t index, uint32_t links) {
    const std::string_view target = tree_.table().text(entry.data);
    sqfs_inode_generic_t& inode = fresh(target.size());
    inode.base.type = SQFS_INODE_EXT_SLINK;
    inode.data.slink_ext.nlink = links;
    inode.data.slink_ext.target_size = static_cast<sqfs_u32>(target.size());
    inode.data.slink_ext.xattr_idx = entry.xattrs;
    std::memcpy(inode.extra, target.data(), target.size());
    fill_base(inode, entry, S_IFLNK, index);
    TRY(parts_.check(sqfs_inode_make_basic(&inode)));
    return put(inode);
  }

  Result<sqfs_u64> write_fifo(const LayerEntry& entry, uint32_t index, uint32_t links) {
    sqfs_inode_generic_t& inode = fresh(0);
    inode.base.type = SQFS_INODE_EXT_FIFO;
    inode.data.ipc_ext.nlink = links;
    inode.data.ipc_ext.xattr_idx = entry.xattrs;
    fill_base(inode, entry, S_IFIFO, index);
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
      reference = write_symlink(entry, index, links);
    else if (entry.kind == EntryKind::fifo)
      reference = write_fifo(entry, index, links);
    else
      reference = write_file(entry, index, links);
    if (reference && links > 1) {
      TRY(take_memory(kMapBytes));
      shared_.emplace(index, *reference);
    }
    return reference;
  }

  Result<sqfs_u64> write_directory(const Open& open) {
    // libsquashfs keeps a directory until it is whole.
    constexpr uint64_t kChildBytes = sizeof(sqfs_u64) + 48;
    uint64_t bytes = kChildBytes * open.children.size();
    for (const uint32_t child : open.children) bytes += tree_.name(child).size();
    TRY(take_memory(bytes));
    std::vector<sqfs_u64> references;
    references.reserve(open.children.size());
    uint32_t subdirectories = 0;
    for (const uint32_t child : open.children) {
      if (tree_.is_directory(child)) {
        const auto found = references_.find(child);
        references.push_back(found->second);
        references_.erase(found);
        give_back(kMapBytes);
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
    give_back(bytes);
    const uint64_t waiting = *parts_.names_bytes;
    TRY(take_memory(waiting - std::exchange(names_taken_, waiting)));
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
    if (!inode)
      return fail(Error(ErrorKind::no_space, "write the directories: out of memory").with_code(ErrorCode::memory));
    // libsquashfs counts every entry, not only directories; programs that walk trees take the number at its word.
    (inode->base.type == SQFS_INODE_EXT_DIR ? inode->data.dir_ext.nlink : inode->data.dir.nlink) = links;
    fill_base(*inode, entry, S_IFDIR, tree_.node(node).inode);
    return put(*inode);
  }

  const RootTree& tree_;
  Parts parts_;
  std::vector<sqfs_u32> numbers_, links_;
  sqfs_u32 inode_count_ = 0;
  uint64_t names_taken_ = 0;
  std::unordered_map<uint32_t, sqfs_u64> references_;  ///< of finished directories whose parent is not finished
  std::unordered_map<uint32_t, sqfs_u64> shared_;      ///< of inodes with several names
  std::vector<uint64_t> buffer_;
};

}  // namespace situla
