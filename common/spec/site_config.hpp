// What did the administrator decide for this node? /etc/situla/situla.toml, root-owned; unknown keys are errors.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "common/spec/import_budget.hpp"
#include "common/spec/registry_rule.hpp"
#include "common/spec/resolve_rule.hpp"
#include "common/sys/mount/subordinate_ids.hpp"

namespace situla {

/// How an image becomes a root file system, best first. `automatic` takes the best one that works on this node.
enum class MountKind : uint8_t { automatic, kernel, fuse, extract };
std::string_view to_string(MountKind kind);

/// How the files of an image that the kernel mounts are the job user's own, best first. `automatic` takes the best one
/// that works on this node.
enum class OwnerWay : uint8_t {
  automatic,
  idmap,    ///< an id-mapped mount (Linux 6.2)
  reflink,  ///< a file of the user's with the image's blocks (XFS, Btrfs)
  dm        ///< device-mapper puts a block of the user's before one of the image's
};
std::string_view to_string(OwnerWay way);

/// Where the files and devices of a vendor's GPUs in containers come from.
enum class GpuMode : uint8_t {
  native,                ///< Situla finds and adds them
  cdi,                   ///< a CDI specification says what they are
  nvidia_container_cli,  ///< NVIDIA's own tool adds them; for no other vendor
  off
};
std::string_view to_string(GpuMode mode);

/// What of the node's network fabric containers use, in place of their images' own.
enum class Fabric : uint8_t {
  cxi,  ///< libcxi and the devices of HPE's Slingshot
  ofi,  ///< libfabric
  ucx,  ///< UCX, with its modules
  mpi   ///< an MPI library with the binary interface of MPICH
};
constexpr std::string_view to_string(Fabric part) {
  constexpr std::array<std::string_view, 4> kWords = {"cxi", "ofi", "ucx", "mpi"};
  return kWords.at(static_cast<size_t>(part));
}

/// How several nodes of a step get an image that their stores do not have.
enum class Distribute : uint8_t {
  registry,  ///< each store asks the registry
  sbcast,    ///< one node of the step does, and Slurm's sbcast takes the image to the others
  shared     ///< they have one store; where it is on a disk of this node, it goes by sbcast
};
std::string_view to_string(Distribute way);

/// Where the job's record in Slurm says which images its steps have: common/spec/job_record.hpp.
enum class JobComment : uint8_t {
  off,
  comment,       ///< its Comment, which its user may write as well
  admin_comment  ///< its AdminComment, which only root and Slurm's operators may write
};
std::string_view to_string(JobComment which);

/// Slurm's commands that can be used inside of containers (hooks/slurm). A fixed list: what is not in it is never run
/// for a container.
constexpr std::array<std::string_view, 9> kSlurmCommands = {"srun",  "sbatch",   "salloc", "squeue", "scancel",
                                                            "sinfo", "scontrol", "sacct",  "sbcast"};
constexpr bool is_slurm_command(std::string_view name) {
  return std::find(kSlurmCommands.begin(), kSlurmCommands.end(), name) != kSlurmCommands.end();
}

/// Which devices containers get, and from where. Nothing here is privileged: the job user's own process acts on it.
struct DeviceSettings {
  GpuMode gpu = GpuMode::native;        ///< gpu = "native|cdi|nvidia-container-cli|off", NVIDIA's
  GpuMode amd_gpu = GpuMode::native;    ///< amd_gpu = "native|cdi|off"
  GpuMode intel_gpu = GpuMode::native;  ///< intel_gpu = "native|cdi|off"
  std::string driver_root = "/";        ///< driver_root; where the driver's libraries and programs are
  std::string device_root = "/";        ///< device_root; where dev, proc and sys are
  bool hide_gpus = true;                ///< hide_gpus; /proc/driver/nvidia and /dev/dri show a container only its own
  bool cuda_compat = true;              ///< cuda_compat; an image's newer CUDA libraries are used where they fit
  std::vector<std::string> cdi_directories = {"/etc/cdi", "/var/run/cdi"};  ///< cdi_directories; later ones win
  bool cdi_hooks = true;             ///< cdi_hooks; programs that CDI files name are run, as the job user
  std::vector<std::string> devices;  ///< devices; CDI names for containers whose user asks for none
  std::vector<Fabric> fabric;        ///< fabric = ["cxi", "ofi", "ucx", "mpi"]; each once, in the order of the values
};

/// "50%" of a file system, or "500GiB"; neither: no limit.
struct DiskShare {
  unsigned percent = 0;
  uint64_t bytes = 0;
  /// Bytes of a file system of so many.
  [[nodiscard]] uint64_t of(uint64_t total) const { return percent > 0 ? total / 100 * percent : bytes; }
  friend bool operator==(const DiskShare&, const DiskShare&) = default;
};

struct SiteConfig {
  MountKind mount = MountKind::automatic;  ///< mount = "auto|kernel|fuse|extract"
  OwnerWay image_owner =
      OwnerWay::automatic;  ///< image_owner = "auto|idmap|reflink|dm"; else FUSE, where mount allows it
  IdRangeRule id_ranges;    ///< id_ranges = "auto|files|off" or a table; who is a whole root in containers
  bool kernel_mount_user_images = false;         ///< let the kernel mount a user's own .sqsh file
  std::string store_path = "/var/lib/situla";    ///< store_path; owned by the service user, not writable by others
  Distribute distribute = Distribute::registry;  ///< distribute = "registry|sbcast|shared"
  std::string service_user = "situla";           ///< service_user; owns the store
  std::string import_user =
      "situla-import";            ///< import_user; who reads what registries send, without rights to the store
  uint32_t imports_per_user = 8;  ///< imports_per_user; at a time on this node; 0: no limit
  uint64_t largest_image = uint64_t{256} << 30U;  ///< largest_image; bytes of one image file; 0: no limit
  DiskShare bytes_per_user{50, 0};                ///< bytes_per_user; of images imported for one user
  std::optional<uint64_t> store_reserve;  ///< store_reserve; bytes left free in its file system; none: the default
  ResolveRule resolve;          ///< resolve = "job", "always" or seconds; when a registry is asked what a tag means
  bool resolve_choice = false;  ///< resolve_choice; users may choose what asks less than that
  std::chrono::seconds grant_lifetime{3600};  ///< grant_lifetime; so long a registry's leave to have an image counts
  std::chrono::seconds grant_offline{86400};  ///< grant_offline; the same while the registry does not answer; 0: never
  DiskShare store_max;                        ///< store_max; bytes of all images; neither: no limit
  std::string local_tier;                     ///< local_tier; on this node's disk, of a shared store; empty: none
  DiskShare local_tier_max{50, 0};            ///< local_tier_max; bytes of all copies in it; neither: no limit
  std::chrono::seconds image_age{0};          ///< image_age; images that nobody asks for so long are removed; 0: never
  uint32_t mounts_per_user = 64;  ///< mounts_per_user; of images, by the kernel, at a time on this node; 0: no limit
  std::chrono::seconds image_mount_idle{
      600};                       ///< image_mount_idle; an unused node-wide image mount is dropped after it
  uint64_t root_tmpfs_bytes = 0;  ///< root_tmpfs = "64MiB"; upper layer of a read-only container; 0: built-in default
  bool json_log = false;          ///< json_log; a step's line in the node's log is a JSON object
  JobComment job_comment = JobComment::off;  ///< job_comment = "off|comment|admin_comment"
  std::vector<std::string> slurm_inside{kSlurmCommands.begin(), kSlurmCommands.end()};  ///< slurm_inside; of Slurm's
                                                                                        ///< commands in containers
  std::chrono::seconds import_timeout{3600};                                            ///< import_timeout
  std::chrono::seconds build_timeout{120};  ///< build_timeout; namespaces, hooks and rc of one container
  std::vector<RegistryRule> registries;     ///< [[registry]]; mirrors, blocked registries; no two with one prefix

  DeviceSettings device_settings;
  ImportBudget import_budget;  ///< [limits]

  /// Reads the file; a missing file gives the defaults. Refuses one that is not owned by root or is writable by others.
  static Result<SiteConfig> load(const std::string& path);
  /// Parses text; `where` names it in errors ("/etc/situla/situla.toml:3: ...").
  static Result<SiteConfig> parse(std::string_view text, const std::string& where);
};

}  // namespace situla
