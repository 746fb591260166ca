// Where does Slurm's configuration lie on this node, and which plugins does it load?
#pragma once

#include <string>
#include <vector>

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
  std::vector<std::string> plugin_directories;  ///< PluginDir; empty: Slurm's own default
  std::vector<PluginLine> lines;
  std::vector<std::string> unreadable;  ///< what is wrong with included files

  /// Looks where Slurm does: SLURM_CONF, what a running slurmd was told, /etc/slurm, and what a node without files of
  /// its own got from slurmctld (/run/slurm/conf).
  static SlurmFiles find(const Places& places, const Environment& environment);
  /// The lines that load a plugin of this file name.
  [[nodiscard]] std::vector<PluginLine> loading(const std::string& plugin) const;
};

}  // namespace situla::doctor
