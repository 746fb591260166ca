// What does this node have of devices for containers? One function for each kind; each says what to do about what is
// not in order.
#pragma once

#include <string>
#include <vector>

#include "common/spec/environment.hpp"
#include "common/spec/site_config.hpp"
#include "hooks/doctor/report.hpp"
#include "hooks/inject/edits/host_roots.hpp"
#include "hooks/inject/inventory/inventory.hpp"

namespace situla::doctor {

/// Gathers what there is of NVIDIA's, as slurmd's start does, and shows it; nvml_program is situla-nvml.
Section gpus(const HostRoots& roots, const std::string& nvml_program);
/// Driver, modules, libraries, and a line for each GPU. The line "driver" alone where there is none.
Section gpu_section(const nvidia::Inventory& inventory, const HostRoots& roots);

/// A line for each GPU of AMD and Intel, in the order of the numbers in AMD_VISIBLE_DEVICES for those who may use all,
/// and one for KFD where AMD's are.
Section drm_section(const HostRoots& roots);

/// A line for each CDI file with its devices, and one for each that is left out, with the reason.
Section cdi_section(const std::vector<std::string>& directories);

/// A line for each adapter with verbs, in the order of MELLANOX_VISIBLE_DEVICES.
Section hca_section(const HostRoots& roots);

/// How much a container gets that asks for all GPUs or adapters, and what the site gives to every container.
Section injection_section(const DeviceSettings& settings, const Environment& environment);

/// "gpus=8 driver=580.95.05", only from /proc; empty without NVIDIA's driver.
std::string brief_gpus(const RootDir& devices);

}  // namespace situla::doctor
