// Can images be had from a registry, and if not, at which step does it fail?
#pragma once

#include <string>

#include "common/base/log.hpp"
#include "common/spec/environment.hpp"
#include "hooks/config/enroot_config.hpp"
#include "hooks/doctor/report.hpp"

namespace situla::doctor {

/// `doctor --registry NAME`, as the user: with his logins and settings.
Section examine_registry(const std::string& name, const EnrootConfig& config, const Environment& environment,
                         LogSink& log);

}  // namespace situla::doctor
