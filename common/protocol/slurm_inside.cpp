#include "common/protocol/slurm_inside.hpp"

#include <algorithm>
#include <array>

#include "common/base/base64.hpp"
#include "common/base/text.hpp"
#include "common/base/wire.hpp"

namespace situla {
namespace {

constexpr WireForm kInput{"input of the Slurm proxy", 0x53500001, size_t{1} << 20U};

/// The last two are what switch/hpe_slingshot and mpi/cray_shasta tell each task.
constexpr std::array<std::string_view, 7> kSlurmPrefixes = {"SLURM", "SRUN_",      "SBATCH_", "SALLOC_",
                                                            "PMI_",  "SLINGSHOT_", "PALS_"};
/// Of a step's devices, and of its collectives on such a switch.
constexpr std::array<std::string_view, 10> kDevices = {"CUDA_VISIBLE_DEVICES",    "GPU_DEVICE_ORDINAL",
                                                       "ROCR_VISIBLE_DEVICES",    "HIP_VISIBLE_DEVICES",
                                                       "ZE_AFFINITY_MASK",        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
                                                       "FI_CXI_COLL_JOB_ID",      "FI_CXI_COLL_JOB_STEP_ID",
                                                       "FI_CXI_COLL_MCAST_TOKEN", "FI_CXI_COLL_FABRIC_MGR_URL"};
constexpr std::array<std::string_view, 3> kSitulaPrefixes = {"SITULA_", "PYXIS_", "ENROOT_"};
constexpr std::array<std::string_view, 6> kOfShell = {"HOSTNAME", "PWD", "OLDPWD",
                                                      "SHLVL",    "_",   "NVIDIA_VISIBLE_DEVICES"};

template <size_t N>
bool is_one_of(std::string_view name, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

bool is_of_slurm(std::string_view variable) {
  // PMIX_MCA_* are what users set.
  return starts_with_one_of(variable, kSlurmPrefixes) || is_one_of(variable, kDevices) ||
         (variable.starts_with("PMIX_") && !variable.starts_with("PMIX_MCA_"));
}

bool is_of_task(std::string_view variable) {
  return is_of_slurm(variable) || starts_with_one_of(variable, kSitulaPrefixes) || is_one_of(variable, kOfShell);
}

// "@00b3f:base64": unix(7) writes an abstract address with an @ in the place of its NUL.
std::string SlurmDoor::text() const {
  return "@" + address.substr(1) + ":" + encode_base64(std::string(token.begin(), token.end()));
}

std::optional<SlurmDoor> SlurmDoor::parse(std::string_view text) {
  SlurmDoor door;
  const auto parts = cut(text, ':');
  const auto bytes = parts ? decode_base64(parts->second) : std::nullopt;
  if (!bytes || bytes->size() != door.token.size() || !parts->first.starts_with('@')) return std::nullopt;
  door.address = std::string(1, '\0') + std::string(parts->first.substr(1));
  std::copy(bytes->begin(), bytes->end(), door.token.begin());
  return door;
}

std::string encode_slurm_proxy_input(const SlurmProxyInput& input) {
  return to_wire(input, kInput);
}

Result<SlurmProxyInput> decode_slurm_proxy_input(std::string_view bytes) {
  return from_wire<SlurmProxyInput>(bytes, kInput);
}

}  // namespace situla
