// How do layer streams become a squashfs file in one pass? DESIGN.md section 4.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "hooks/import/enroot_files.hpp"
#include "hooks/import/hidden_paths.hpp"
#include "hooks/import/layer_stream.hpp"
#include "hooks/import/layer_table.hpp"
#include "hooks/import/manifest.hpp"
#include "hooks/import/progress.hpp"
#include "hooks/import/root_tree.hpp"
#include "hooks/import/squashfs_writer.hpp"
#include "hooks/import/trace.hpp"

namespace situla {

/// Opens streams of the given blobs, to be read in that order.
using StreamOpener = std::function<Result<std::unique_ptr<LayerStream>>(const std::vector<Blob>&)>;

struct BuiltImage {
  uint64_t image_bytes = 0;
  uint64_t unpacked_bytes = 0;
  uint64_t dead_bytes = 0;  ///< uncompressed bytes of content in the file that no name of the tree leads to
};

/// Reads the layers from the top down, one after the other. Content goes into blocks as it comes unless an upper layer
/// hides it; the tree is merged afterwards, from the bottom up. So nothing of a hidden file is compressed or written,
/// and the order of the blocks depends on the image alone. Dead content remains only where a layer names a path twice,
/// or where the text of a path does not tell (a hard link's target, a symlink on the way): never more than those
/// entries of that layer. In the rare case that a file left out is visible after all, its layer is read a second time
/// for it.
class ImageBuilder {
 public:
  /// blobs: bottom first, as in the manifest. fd, where: as for SquashfsWriter.
  ImageBuilder(int fd, std::string where, SquashOptions options, std::vector<Blob> blobs);

  /// Told of layers and bytes while build() runs.
  void report_to(Progress& progress) { progress_ = &progress; }
  /// Tells of the reader's work and of the writer's.
  void trace_to(Trace* trace) { trace_ = trace; }
  /// source: for /etc/rc.
  Result<BuiltImage> build(const StreamOpener& open, const ImageConfig& config, const std::string& source);

 private:
  static Error cause_of(Error error, LayerStream& stream, const Blob& blob);
  Result<void> read_layer(LayerStream& stream, const Blob& blob);
  void report(const LayerStream& stream, bool finished = false);
  Result<void> read_entry(TarReader& reader, const TarEntry& entry, size_t layer);
  Result<void> write_content(TarReader& reader, uint32_t index);
  Result<void> reread(const StreamOpener& open, const std::vector<uint32_t>& missing);
  Result<void> add_configuration(RootTree& tree, const ImageConfig& config, const std::string& source);
  Result<void> add_file(RootTree& tree, const std::string& path, const std::string& content, uint16_t mode);
  [[nodiscard]] uint64_t count_dead(const RootTree& tree) const;

  int fd_;
  std::string where_;
  SquashOptions options_;
  std::vector<Blob> blobs_;
  Progress* progress_ = nullptr;
  Trace* trace_ = nullptr;
  TraceTurns turns_{nullptr, "", ""};
  std::unique_ptr<SquashfsWriter> writer_;
  LayerTable table_;
  HiddenPaths hidden_;
};

}  // namespace situla
