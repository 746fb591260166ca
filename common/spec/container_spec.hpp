// What container does this step want? Everything the user said in options and environment, parsed once. COMPAT.md
// section 1.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "common/spec/mount_option.hpp"

namespace situla {

/// unset: follow the enroot configuration of the user and site.
enum class Tristate : uint8_t { unset, no, yes };

struct ContainerSpec {
  std::string image;  ///< as typed; see image_kind(); empty = none
  std::vector<MountOption> mounts;
  std::string workdir;                ///< empty = the image's WORKDIR, else "/"
  std::vector<std::string> keep_env;  ///< --container-env: names that keep the host's value
  Tristate mount_home = Tristate::unset;
  Tristate remap_root = Tristate::unset;
  Tristate writable = Tristate::unset;
  /// Size of the terminal on which the one task's import may draw; 0: there is none.
  uint32_t terminal_columns = 0, terminal_rows = 0;

  /// A versioned byte string for the way plugin -> builder; deserialize() trusts nothing and reports
  /// ErrorKind::corrupt.
  [[nodiscard]] std::string serialize() const;
  static Result<ContainerSpec> deserialize(std::string_view bytes);

  friend bool operator==(const ContainerSpec&, const ContainerSpec&) = default;
};

}  // namespace situla
