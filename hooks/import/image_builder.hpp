// How do layer streams become a squashfs file in one pass? DESIGN.md section 4.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "hooks/import/block_seal.hpp"
#include "hooks/import/hidden_paths.hpp"
#include "hooks/import/layer_cache.hpp"
#include "hooks/import/layer_stream.hpp"
#include "hooks/progress/progress.hpp"
#include "hooks/registry/manifest.hpp"
#include "hooks/sources/tar_reader.hpp"
#include "hooks/squashfs/budget.hpp"
#include "hooks/squashfs/layer_table.hpp"
#include "hooks/squashfs/root_tree.hpp"
#include "hooks/squashfs/trace.hpp"
#include "hooks/squashfs/writer.hpp"
#include "hooks/squashfs/xattr_sets.hpp"

namespace situla {

/// Opens streams of the given blobs, to be read in that order.
using StreamOpener = std::function<Result<std::unique_ptr<LayerStream>>(const std::vector<Blob>&)>;

struct BuiltImage {
  uint64_t image_bytes = 0;
  uint64_t unpacked_bytes = 0;  ///< tar streams that were read
  uint64_t reused_bytes = 0;    ///< compressed layers that needed not be fetched
  uint64_t dead_bytes = 0;      ///< uncompressed bytes of content in the file that no name of the tree leads to
};

/// Reads the layers from the top down, one after the other. Content goes into blocks as it comes unless an upper layer
/// hides it; the tree is merged afterwards, from the bottom up. So nothing of a hidden file is compressed or written,
/// and the order of the blocks depends on the image alone. Dead content remains only where a layer names a path twice,
/// or where the text of a path does not tell (a hard link's target, a symlink on the way): never more than those
/// entries of that layer. In the rare case that a file left out is visible after all, its layer is read a second time
/// for it.
class ImageBuilder {
 public:
  /// blobs: bottom first, as in the manifest. fd, where: as for SquashfsWriter. meter: of this image and no other.
  ImageBuilder(int fd, std::string where, SquashOptions options, std::vector<Blob> blobs, ImportMeter& meter);

  /// Told of layers and bytes while build() runs.
  void report_to(Progress& progress) { progress_ = &progress; }
  /// Layers that need not be fetched: one for each blob, bottom first, nullopt for those that must. What one of them
  /// lacks (a file that is hidden in the image it is taken from, but not in this one) has its layer fetched after all.
  void reuse(std::vector<std::optional<KnownLayer>> known);
  /// Tells of the reader's work and of the writer's.
  void trace_to(Trace* trace) { trace_ = trace; }
  /// source: for /etc/rc.
  Result<BuiltImage> build(const StreamOpener& open, const ImageConfig& config, const std::string& source);
  /// Everything about a layer (0 is the bottom) of the image that was built, for those that build on it.
  Result<void> describe_layer(size_t layer, FileSealer& sealer, LayerIndexWriter& index) const;
  /// Bytes of files of a layer whose content is in the image.
  [[nodiscard]] uint64_t stored_bytes(size_t layer) const;
  /// Whether build() failed over a layer that was to be reused: without them it may succeed.
  [[nodiscard]] bool reuse_failed() const { return reuse_failed_; }

 private:
  Error cause_of(Error error, LayerStream& stream, const Blob& blob);
  Result<void> read_layers(const StreamOpener& open, BuiltImage& built);
  Result<void> read_layer(LayerStream& stream, const Blob& blob);
  Result<void> replay_layer(const KnownLayer& known);
  Result<void> adopt(const SquashfsDonor& donor, std::vector<uint32_t>& entries, std::vector<StoredFile>& files);
  Result<void> end_layer();
  Result<uint32_t> add_entry(const TarEntry& entry);
  Result<void> take_content(uint64_t size);
  [[nodiscard]] bool needs_content(uint32_t index);
  void report(const LayerStream& stream, bool finished = false);
  Result<void> read_entry(TarReader& reader, const LayerStream& stream, const TarEntry& entry);
  Result<void> write_content(TarReader& reader, const LayerStream& stream, uint32_t index);
  Result<void> take_hole(uint64_t bytes, const LayerStream& stream);
  Result<void> reread(const StreamOpener& open, const std::vector<uint32_t>& missing);
  struct MadeFile {
    std::string path;
    uint32_t entry = kNone;
  };
  Result<std::vector<MadeFile>> write_configuration(const ImageConfig& config, const std::string& source);
  Result<MadeFile> write_file(const std::string& path, const std::string& content);
  Result<void> forget_duplicates();
  [[nodiscard]] uint64_t count_dead(const RootTree& tree) const;

  int fd_;
  std::string where_;
  SquashOptions options_;
  std::vector<Blob> blobs_;
  std::vector<std::optional<KnownLayer>> known_;
  bool reuse_failed_ = false;
  std::vector<size_t> streamed_;  ///< the layers (0 is the top) that are read from the stream, in its order
  Progress* progress_ = nullptr;
  Trace* trace_ = nullptr;
  TraceTurns turns_{nullptr, "", ""};
  std::unique_ptr<SquashfsWriter> writer_;
  ImportMeter& meter_;
  uint64_t compressed_bytes_ = 0;  ///< of all blobs, as the manifest has them
  uint64_t holes_ = 0;             ///< bytes of holes of sparse files that were written as zeros
  uint64_t duplicates_ = 0;        ///< bytes that libsquashfs keeps to find equal small files
  LayerTable table_;
  HiddenPaths hidden_;
  XattrSets xattrs_;
};

}  // namespace situla
