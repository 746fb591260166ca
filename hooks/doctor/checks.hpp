// Which single facts make up the report? Each function looks at one and says what it found and what to do.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/spec/environment.hpp"
#include "common/spec/site_config.hpp"
#include "hooks/doctor/report.hpp"
#include "hooks/doctor/slurm_files.hpp"

namespace situla::doctor {

// kernel_checks.cpp: what the kernel can do with images.
Check check_kernel(const Places& places);
Check check_mount_api();
Check check_overlay();
Check check_squashfs(const Places& places);
Check check_loop(const Places& places);
Check check_compressors();
Check check_idmapped_mounts();
/// By which way the files of a mounted image are the job user's; idmapped: what check_idmapped_mounts() found.
Check check_image_owner(const SiteConfig& config, const Check& idmapped);
Check check_fuse(const Places& places);

// namespace_checks.cpp: what the node's settings allow to ordinary users.
Check check_user_namespaces(const Places& places);
Check check_namespace_limits(const Places& places);
/// Ubuntu's restriction of user namespaces to programs with an AppArmor profile.
Check check_apparmor(const Places& places);
Check check_selinux(const Places& places);
Check check_cgroups(const Places& places);

// range_checks.cpp: what users who have ids beside their own (common/sys/mount/subordinate_ids.hpp) need of the node.
/// The fact "files" of a node where nobody has ids by /etc/subuid and /etc/subgid. Elsewhere it tells whether the two
/// files are those of other nodes.
constexpr const char* kNoRangeLines = "none";
Check check_id_ranges(const Places& places, const SiteConfig& config);
/// check_id_ranges(), and where somebody has such ids what becomes of his processes and files.
std::vector<Check> check_ranges(const Places& places, const SiteConfig& config, const SlurmFiles& files);

// site_checks.cpp: what the administrator installed and decided.
Check check_site_config(const Places& places, SiteConfig& config);
Check check_service_user(const SiteConfig& config);
Check check_import_user(const SiteConfig& config);
Check check_store(const SiteConfig& config);
Check check_runtime_directory(const Places& places);
Check check_programs(const Places& places);
Check check_shell();
Check check_configuration_directory(const Places& places);

// slurm_checks.cpp: does Slurm load the plugin, and is it the one for this Slurm?
/// The file that Slurm loads, or the one that was installed.
std::string plugin_that_loads(const Places& places, const SlurmFiles& files);
Check check_slurm_plugin(const Places& places);
/// Compares the version that the plugin was built for with what srun or slurmd says of itself.
Check check_slurm_version(const Places& places, const Environment& environment);
Check check_plugstack(const Places& places, const SlurmFiles& files);
/// What the plugin's line says behind its name.
Check check_plugin_arguments(const SlurmFiles& files);
/// When a job's prolog runs, and so when its image is begun.
Check check_prolog(const SlurmFiles& files);
/// job_comment of situla.toml: whether what writes it is there.
Check check_job_comment(const Places& places, const SiteConfig& config, const Environment& environment);
/// use_squashfuse=1 beside the plugin's name is mount = "fuse". True when it says so.
bool plugstack_wants_fuse(const SlurmFiles& files);

// disk_checks.cpp: is there room, and is it of a kind that serves?
enum class Use { store, copies, data, cache, temp, runtime };  ///< copies: local_tier of situla.toml
/// A directory of the caller's that need not exist yet. Never State::fail: steps without a name do without it.
Check check_user_directory(const std::string& name, const std::string& path, Use use);
/// Free bytes, file system, and what is wrong with it for `use`, added to the check.
void add_disk(Check& check, const std::string& path, Use use);

/// What was tried works, or does not, and then `fix` says what to do.
Check check_of(const char* name, const Result<void>& tried, const char* works, State otherwise, const std::string& fix);
/// The first line of a file, without blanks around it; empty when it cannot be read.
std::string first_line(const std::string& path);
/// The full path of a program on $PATH (or the usual directories when there is none).
std::optional<std::string> find_program(const std::string& name, const Environment& environment);

}  // namespace situla::doctor
