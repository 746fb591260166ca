// Which single facts make up the report? Each function looks at one and says what it found and what to do.
#pragma once

#include <optional>
#include <string>

#include "common/spec/environment.hpp"
#include "common/spec/site_config.hpp"
#include "hooks/cli/doctor/doctor.hpp"

namespace situla::doctor {

// kernel_checks.cpp: what the kernel and its settings allow.
Check check_kernel(const Places& places);
Check check_user_namespaces(const Places& places);
Check check_mount_api();
Check check_overlay();
Check check_squashfs(const Places& places);
Check check_loop(const Places& places);
Check check_compressors();
Check check_idmapped_mounts();
Check check_fuse(const Places& places);

// site_checks.cpp: what the administrator installed and decided.
Check check_site_config(const Places& places, SiteConfig& config);
Check check_service_user(const SiteConfig& config);
Check check_store(const SiteConfig& config);
Check check_runtime_directory();
Check check_programs(const Places& places);
Check check_shell();
Check check_slurm_plugin(const Places& places);
Check check_plugstack(const Places& places, const Environment& environment);
/// use_squashfuse=1 beside the plugin's name is mount = "fuse". True when it says so.
bool plugstack_wants_fuse(const Places& places, const Environment& environment);

/// The full path of a program on $PATH (or the usual directories when there is none).
std::optional<std::string> find_program(const std::string& name, const Environment& environment);

}  // namespace situla::doctor
