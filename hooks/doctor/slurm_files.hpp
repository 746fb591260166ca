// Where does Slurm's configuration lie on this node, and which plugins does it load?
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "common/spec/environment.hpp"

namespace situla::doctor {

struct Places;

/// One line of plugstack.conf or of a file that it includes.
struct PluginLine {
  std::string file;
  std::string rule;  ///< "required", "optional", lower case
  std::string path;  ///< as written: a name without a slash is looked for in PluginDir
  std::vector<std::string> arguments;
};

struct SlurmFiles {
  std::string slurm_conf;                       ///< empty: there is none
  std::string from;                             ///< how it was found: "SLURM_CONF", "slurmd -f"; empty: the usual place
  std::string plugstack;                        ///< PlugStackConfig, or plugstack.conf beside slurm.conf
  bool plugstack_exists = false;                ///< Slurm goes on without one
  std::string prolog_flags;                     ///< PrologFlags, as written
  std::string proctrack;                        ///< ProctrackType, as written
  std::vector<std::string> plugin_directories;  ///< PluginDir; empty: Slurm's own default
  bool one_address = false;                     ///< CommunicationParameters has NoInAddrAny
  bool bcast_addresses = false;                 ///< nodes have addresses of their own for sbcast (BcastAddr)
  std::vector<PluginLine> lines;
  std::vector<std::string> unreadable;  ///< what is wrong with included files

  /// Looks where Slurm does: SLURM_CONF, what a running slurmd was told, /etc/slurm, and what a node without files of
  /// its own got from slurmctld (/run/slurm/conf).
  static SlurmFiles find(const Places& places, const Environment& environment);
  /// The lines that load a plugin of this file name.
  [[nodiscard]] std::vector<PluginLine> loading(const std::string& plugin) const;
};

/// Slurm's releases are compatible with plugins of the same two numbers: 22.05, 23.11.
struct SlurmVersion {
  uint32_t major = 0, minor = 0, patch = 0;
  [[nodiscard]] std::string release() const;  ///< "23.11"
  [[nodiscard]] std::string text() const;     ///< "23.11.4"
  [[nodiscard]] bool fits(const SlurmVersion& other) const { return major == other.major && minor == other.minor; }
};

/// Which Slurm a plugin was built for, as the symbol `plugin_version` of the shared object says (slurm/spank.h,
/// SPANK_PLUGIN); it is read and not loaded. ErrorKind::corrupt for
/// what is no plugin of Slurm's.
Result<SlurmVersion> version_built_for(const std::string& plugin);

/// "slurm 23.11.4", "slurm-wlm 22.05.8": what Slurm's programs print for --version.
Result<SlurmVersion> parse_slurm_version(std::string_view text);

}  // namespace situla::doctor
