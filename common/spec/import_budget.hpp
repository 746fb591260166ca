// How much may one image make an import take? The administrator's numbers; hooks/squashfs/budget.hpp keeps them.
#pragma once

#include <cstdint>

namespace situla {

/// Table [limits] of situla.toml. The defaults are beyond what an honest image needs, and keep every process of an
/// import under 256 MiB. They hold for the node's store and for what users import for themselves.
struct ImportBudget {
  uint64_t entries = 4'000'000;                 ///< entries; of all layers together
  uint64_t metadata = uint64_t{144} << 20U;     ///< metadata; bytes of memory that grow with the image
  uint64_t xattrs = uint64_t{16} << 20U;        ///< xattrs; bytes of extended attributes, equal sets once
  uint64_t file_size = uint64_t{256} << 30U;    ///< file_size; bytes of one file
  uint64_t unpacked = uint64_t{1} << 40U;       ///< unpacked; bytes of all layers, holes included
  uint64_t expansion = 200;                     ///< expansion; times its compressed size, beyond kFreelyUnpacked
  uint64_t layers = 512;                        ///< layers
  uint64_t manifest_size = uint64_t{4} << 20U;  ///< manifest_size; bytes of a manifest or an index
  uint64_t config_size = uint64_t{4} << 20U;    ///< config_size; bytes of an image's configuration

  /// What an image may unpack to however small it is: a layer of zeros is nothing to worry about while it is small.
  static constexpr uint64_t kFreelyUnpacked = uint64_t{16} << 30U;

  friend bool operator==(const ImportBudget&, const ImportBudget&) = default;
};

}  // namespace situla
