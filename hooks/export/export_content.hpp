// What is in a container's files? Unchanged ones keep their compressed blocks, the others are read and compressed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/sys/root_dir.hpp"
#include "hooks/export/export_tree.hpp"
#include "hooks/progress/progress.hpp"
#include "hooks/squashfs/donor.hpp"
#include "hooks/squashfs/writer.hpp"
#include "hooks/unpack/image_access.hpp"

namespace situla {

/// Puts content into a finished ExportTree, in an order that the names decide.
class ExportContent {
 public:
  ExportContent(ExportTree& tree, SquashfsWriter& writer, Progress& progress)
      : tree_(tree), writer_(writer), progress_(progress) {}

  /// For files that the tree referred to, before the others. Where little of the donor is unused (at most kMostUnused)
  /// it is taken as a whole, which costs nothing where files can share storage; else block by block. Returns the bytes
  /// that were taken.
  Result<uint64_t> keep(const SquashfsDonor& donor);
  /// Of an image that has no blocks for this writer.
  Result<void> compress_image(ImageAccess& image);
  Result<void> compress_directory(const RootDir& root);
  [[nodiscard]] uint64_t compressed_bytes() const { return compressed_; }

  static constexpr double kMostUnused = 0.1;

 private:
  struct Piece {
    uint64_t start = 0, bytes = 0;
    uint32_t data = kNone;
  };
  Result<std::vector<Piece>> pieces_of(const SquashfsDonor& donor);
  Result<uint64_t> keep_pieces(const SquashfsDonor& donor, const std::vector<Piece>& pieces);
  void start_compressing(bool image);
  Result<void> compress_names(const RootDir& root, const std::string& path, uint32_t node,
                              std::vector<std::pair<std::string, uint32_t>>& open);
  Result<void> compress_file(int directory, const std::string& name, const std::string& path, uint32_t node);
  Result<void> compress_image_file(ImageAccess& image, const StoredInode& file, LayerEntry& entry);
  [[nodiscard]] bool pending(uint32_t inode);
  Result<void> append(std::string_view bytes);

  ExportTree& tree_;
  SquashfsWriter& writer_;
  Progress& progress_;
  uint64_t compressed_ = 0, to_compress_ = 0;
};

}  // namespace situla
