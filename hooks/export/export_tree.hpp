// Which files does a container have? Those of its image and those of its upper layer, as one tree.
#pragma once

#include <cerrno>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <sys/stat.h>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/sys/mount/id_maps.hpp"
#include "common/sys/root_dir.hpp"
#include "hooks/squashfs/layer_table.hpp"
#include "hooks/squashfs/root_tree.hpp"
#include "hooks/squashfs/writer.hpp"
#include "hooks/unpack/image_access.hpp"

namespace situla {

/// Whether a running container has removed, or replaced by another kind, what is to be opened.
inline bool vanished(int errnum) {
  return errnum == ENOENT || errnum == ENOTDIR || errnum == ELOOP;
}

/// Names and inodes; content comes later (export_content.hpp). First the image, if there is one, then the directory,
/// then finish().
class ExportTree {
 public:
  enum class Directory { tree, upper_layer };
  enum class Content { referred, compressed };  ///< referred: by SquashfsWriter::refer()

  /// writer: gets attributes, and the places of an image's content. ids: of this process's user namespace; without a
  /// range all files are 0's.
  ExportTree(SquashfsWriter& writer, const NamespaceIds& ids, LogSink& log)
      : writer_(writer), ids_(ids), log_(log), tree_(table_) {}
  ExportTree(const ExportTree&) = delete;
  ExportTree& operator=(const ExportTree&) = delete;

  Result<void> add_image(ImageAccess& image, Content content);
  /// Whiteouts and opaque directories of an overlay's upper layer (mounted with userxattr, without redirect_dir and
  /// metacopy: kernel documentation, filesystems/overlayfs.rst) hide what the image has.
  Result<void> add_directory(const RootDir& root, Directory kind);
  /// Removes what is never exported. No name is added afterwards.
  void finish();

  /// Where the inode of a node, or one that it shares, comes from.
  [[nodiscard]] bool of_image(uint32_t inode) const { return inode >= image_begin_ && inode < directory_begin_; }
  [[nodiscard]] bool of_directory(uint32_t inode) const { return inode >= directory_begin_ && inode < end_; }
  [[nodiscard]] LayerEntry& entry(uint32_t inode) { return table_.entry(inode); }
  [[nodiscard]] RootTree& names() { return tree_; }
  [[nodiscard]] const FileOwners& owners() const { return owners_; }
  /// Inodes that names lead to, each once, in order.
  [[nodiscard]] std::vector<uint32_t> inodes() const;
  /// Said once for each `what`; the first path is the example.
  void note(LogLevel level, const std::string& what, const std::string& path);

 private:
  struct ImageDirectory {
    StoredInode inode;
    uint32_t node = 0;
    std::string path;
  };
  struct OpenDirectory {
    int fd = -1;
    uint32_t node = 0;
    std::string path;
    bool overlay = false;
  };
  struct Found {  ///< a name in a directory
    struct stat status {};
    LayerEntry entry;
    bool opaque = false, whiteout = false;
  };

  Result<void> list_image(ImageAccess& image, const ImageDirectory& directory, Content content);
  Result<uint32_t> image_inode(ImageAccess& image, const StoredInode& stored, const std::string& path, Content content);
  Result<void> list_directory(const RootDir& root, const std::string& path, uint32_t node, bool overlay);
  Result<void> add_name(const OpenDirectory& directory, const std::string& name);
  Result<void> add_subdirectory(const OpenDirectory& directory, const std::string& name, const Found& found);
  Result<void> add_leaf(const OpenDirectory& directory, const std::string& name, const Found& found);
  Result<void> read_attributes(const std::string& place, const OpenDirectory& directory, const std::string& path,
                               Found& found);
  Result<void> read_target(const OpenDirectory& directory, const std::string& name, LayerEntry& entry);
  Result<uint32_t> add_inode(const LayerEntry& entry);
  Result<uint32_t> add_found(const Found& found);
  Result<void> take_image_ids(ImageAccess& image);
  void hide(uint32_t directory, const std::string& name);

  SquashfsWriter& writer_;
  const NamespaceIds& ids_;
  LogSink& log_;
  FileOwners owners_;
  std::vector<uint32_t> image_ids_;  ///< by StoredInode::owner and ::group; empty: all are 0's
  LayerTable table_;
  RootTree tree_;
  uint32_t image_begin_ = 0, directory_begin_ = 0, end_ = 0;  ///< ranges of inodes
  std::vector<ImageDirectory> open_image_;
  std::vector<std::pair<std::string, uint32_t>> open_;                 ///< directories to be listed
  std::set<uint32_t> seen_directories_;                                ///< of the image, by number
  std::map<uint32_t, uint32_t> image_links_;                           ///< number in the image -> inode
  std::map<std::pair<uint64_t, uint64_t>, uint32_t> directory_links_;  ///< device and number -> inode
  std::set<std::string> noted_;
};

}  // namespace situla
