// Which Slurm was a plugin built for? Read from the file, which is not loaded.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/result.hpp"

namespace situla::doctor {

/// Slurm's releases are compatible with plugins of the same two numbers: 22.05, 23.11.
struct SlurmVersion {
  uint32_t major = 0, minor = 0, patch = 0;
  [[nodiscard]] std::string release() const;  ///< "23.11"
  [[nodiscard]] std::string text() const;     ///< "23.11.4"
  [[nodiscard]] bool fits(const SlurmVersion& other) const { return major == other.major && minor == other.minor; }
};

/// What the symbol `plugin_version` of the shared object says (slurm/spank.h, SPANK_PLUGIN). ErrorKind::corrupt for
/// what is no plugin of Slurm's.
Result<SlurmVersion> version_built_for(const std::string& plugin);

/// "slurm 23.11.4", "slurm-wlm 22.05.8": what Slurm's programs print for --version.
Result<SlurmVersion> parse_slurm_version(std::string_view text);

}  // namespace situla::doctor
