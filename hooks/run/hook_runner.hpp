// How do a container's hooks run, built-in ones, scripts and the configuration script's, one after the other?
// COMPAT.md 6.3.
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/spec/environment.hpp"
#include "common/sys/root_dir.hpp"
#include "hooks/inject/edits/edits.hpp"
#include "hooks/mount/step.hpp"
#include "hooks/run/config_script.hpp"
#include "hooks/run/enroot_config.hpp"
#include "hooks/run/hook_sequence.hpp"
#include "hooks/run/host_script.hpp"

namespace situla {

struct HookScene {
  const RootDir& root;
  const std::string& root_path;
  const Environment& host;
  const EnrootConfig& config;  ///< with what the options say on top
  uid_t uid = 0;               ///< of the user on the host
  gid_t gid = 0;
  const DeviceSettings& device_settings;
  const std::vector<std::string>& wanted_devices;
  HookUse use = HookUse::command;
  ScriptHost& scripts;
  ConfigScript* configuration = nullptr;  ///< or none
};

/// Changes the container's files and environment; returns what is to be mounted after the hooks, in the order in which
/// they asked for it.
Result<std::vector<MountStep>> run_hooks(const HookScene& scene, Environment& environment, LogSink& log);

/// What the hooks of this scene would have applied of edits. Nothing is changed, and no script runs; what a script
/// would have set counts for nothing.
Result<ContainerEdits> planned_edits(const HookScene& scene, Environment environment, LogSink& log);

}  // namespace situla
