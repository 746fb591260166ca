// What can this node do, what is missing, and how is that mended? `situla doctor`.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/spec/environment.hpp"

namespace situla::doctor {

enum class State { ok, warn, fail };
std::string_view to_string(State state);

/// One line of the report.
struct Check {
  std::string name;  ///< stable, for scripts: "user-namespaces"
  State state = State::ok;
  std::string found;  ///< what is there, for people
  std::string fix;    ///< what to do about it; empty when nothing needs doing
  /// What `found` says, in parts, for scripts: {"uuid", "GPU-..."}.
  std::vector<std::pair<std::string, std::string>> facts = {};
};

/// A kind of device of this node. Nothing here keeps a container from starting.
struct Section {
  std::string name;   ///< stable, for scripts: "gpus"
  std::string title;  ///< for people
  std::vector<Check> lines;
};

struct Report {
  std::vector<Check> checks;
  std::string tier;      ///< how images become root file systems here: "kernel", "fuse", "extract" or "none"
  std::string reason;    ///< why no better one: the check that stands in the way, or the setting; empty for "kernel"
  bool complete = true;  ///< false: the caller was not root, so what needs root was not tried and jobs may do better
  std::string gpus;      ///< "gpus=8 driver=580.95.05"; empty without NVIDIA's driver
  std::vector<Section> sections;  ///< from examine_devices()

  [[nodiscard]] bool failed() const;
  [[nodiscard]] std::string text() const;  ///< a line per check, fixes beneath them, the tier, the sections
  [[nodiscard]] std::string json() const;
  /// What slurmd logs when it starts: how images become root file systems and how many GPUs there are, then a line
  /// "error: ..." per failed check.
  [[nodiscard]] std::string brief() const;
};

/// Where things are looked for; the defaults are where this build was installed.
struct Places {
  std::string site_config;
  std::string libexec;
  std::string plugin;  ///< spank_situla.so
  std::string proc = "/proc";
  std::string dev = "/dev";
  std::string slurm_conf;  ///< slurm.conf; empty: $SLURM_CONF, /etc/slurm/slurm.conf
  static Places installed();
};

Report examine(const Places& places, const Environment& environment);
/// Adds what the node has of devices, and what of it containers get: seconds, where a driver is slow to answer.
void examine_devices(Report& report, const Places& places, const Environment& environment);

}  // namespace situla::doctor
