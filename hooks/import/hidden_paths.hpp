// Need the content of this file be kept, or do upper layers hide it? Layers are read from the top down to be able to
// tell.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "hooks/squashfs/layer_table.hpp"

namespace situla {

/// Knows, by the text of paths alone, what the layers read so far hide of the layers beneath. A symlink in a path can
/// make the answer wrong in either direction: a file kept in vain costs space, and a file left out that turns out to be
/// visible is found by RootTree::files_without_data() and read again. So the answer need be good, not perfect, and
/// hashes of paths will do.
class HiddenPaths {
 public:
  /// The layer has been read; those read from now on lie beneath it.
  Result<void> add_layer(LayerTable& table, size_t layer);
  /// All layers have been read.
  void forget(const LayerTable& table);
  /// Whether what has this name in a directory of the table is hidden.
  [[nodiscard]] bool hides(const LayerTable& table, uint32_t directory, std::string_view name);

 private:
  struct Directory {
    uint64_t hash = 0;
    uint32_t layers = 0;  ///< layers_ when it was looked at
    bool hidden = false;
  };
  /// Names are hashed one upon the other, so that the directories above are met on the way.
  [[nodiscard]] uint64_t hash_of(std::string_view clean_path) const;
  [[nodiscard]] Result<void> check_steps(const LayerTable& table) const;
  const Directory& look_at(const LayerTable& table, uint32_t directory);

  KeyedHash hash_;
  uint32_t layers_ = 1;
  uint64_t steps_ = 0;                  ///< names of paths that were looked at
  std::vector<Directory> directories_;  ///< by their number in the table, which takes the memory for them
  uint64_t taken_ = 0;                  ///< bytes
  std::vector<uint64_t> covered_;  ///< sorted: a non-directory or a whiteout is here; it and what is beneath is hidden
  std::vector<uint64_t> opaque_;   ///< sorted: what is beneath is hidden
  std::vector<uint64_t> wanted_;   ///< sorted: targets of hard links that their own layer does not have
};

}  // namespace situla
