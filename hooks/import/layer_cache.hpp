// Which layers of a new image are in squashfs files that were imported before?
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/base/result.hpp"
#include "common/spec/digest.hpp"
#include "common/sys/private_directory.hpp"
#include "hooks/import/layer_index.hpp"
#include "hooks/squashfs/donor.hpp"
#include "hooks/squashfs/squash_options.hpp"

namespace situla {

/// A layer that need not be fetched.
struct KnownLayer {
  LayerIndex index;
  std::shared_ptr<const SquashfsDonor> donor;  ///< open, so that its file may lose its name now
};

/// What earlier imports left for this one. Nothing in it must be there: what is damaged, replaced or gone is fetched
/// from its source again. Where indexes and files lie is the cache's business: a donor is a descriptor with a name.
class LayerCache {
 public:
  LayerCache() = default;
  LayerCache(const LayerCache&) = delete;
  LayerCache& operator=(const LayerCache&) = delete;
  virtual ~LayerCache() = default;

  using WriteEntries = std::function<Result<void>(LayerIndexWriter&)>;

  [[nodiscard]] virtual std::optional<KnownLayer> find(const Digest& layer) = 0;
  /// Replaces what is known of head.layer, unless another file holds more of it. head.donor: the name under which the
  /// cache finds the file again; it need not have that name yet.
  virtual Result<void> put(const LayerIndexHead& head, const WriteEntries& write_entries) = 0;
};

/// The indexes of one user below a directory: those that were not used for longest go when there are too many.
void trim_indexes(const std::string& directory);
constexpr size_t kMostIndexes = 4096;
constexpr uint64_t kMostIndexBytes = uint64_t{512} << 20U;

/// What blocks can be reused in files written with these options: "zstd-131072".
std::string block_kind(const SquashOptions& options);

/// The squashfs files that one import takes layers from. Each is opened once for each key: what is taken by one key
/// says nothing about what another was made for.
class Donors {
 public:
  explicit Donors(const SquashOptions& options) : options_(options) {}
  /// Null: of no use. open: opens the file that the head names.
  std::shared_ptr<const SquashfsDonor> get(const LayerIndexHead& head, const std::function<Result<UniqueFd>()>& open);

 private:
  struct Opened {
    FileIdentity seen;
    std::shared_ptr<const SquashfsDonor> donor;
  };
  SquashOptions options_;  ///< of the file to be written
  std::map<std::pair<std::string, SealKey>, Opened> donors_;
};

/// A directory of layer indexes, `<64 hex>.<compressor>-<block size>`, each of which points into an imported squashfs
/// file, whose name is its path. No content is kept twice: what is reused are the compressed blocks of that file, and
/// with the file the layer is forgotten. The directory is its user's alone (PrivateDirectory); the squashfs files may
/// be anywhere, and what is taken from them is checked.
class DirectoryLayerCache final : public LayerCache {
 public:
  /// Beneath `place`, which others may share; nothing is kept when it cannot be made. place empty: none. options: of
  /// the files to be written.
  DirectoryLayerCache(const std::string& place, const std::string& name, const SquashOptions& options);

  [[nodiscard]] std::optional<KnownLayer> find(const Digest& layer) override;
  Result<void> put(const LayerIndexHead& head, const WriteEntries& write_entries) override;

  /// trim_indexes() of the directory.
  void trim() const;

 private:
  [[nodiscard]] std::string path_of(const Digest& layer) const;
  Result<PrivateDirectory> directory_;
  SquashOptions options_;
  Donors donors_;
};

}  // namespace situla
