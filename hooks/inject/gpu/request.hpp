// Who asks for which GPUs of a vendor, for this container? README.md has the table.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "common/spec/environment.hpp"
#include "common/spec/site_config.hpp"

namespace situla::gpu {

/// The words of one vendor.
struct Vendor {
  std::string_view name;          ///< "NVIDIA"
  GpuMode DeviceSettings::*mode;  ///< the site's setting
  std::string_view kind;          ///< of the Container Device Interface: "nvidia.com/gpu"
  std::string_view variable;      ///< by which jobs and images ask; empty: there is none
  bool by_slurm = false;          ///< what Slurm gives to the job counts as asked for
  /// By which Slurm, or the user, tells the vendor's runtime in a job which GPUs to use; empty ones are none.
  std::array<std::string_view, 3> runtime_variables = {};
};

inline constexpr Vendor kNvidia{"NVIDIA", &DeviceSettings::gpu, "nvidia.com/gpu", "NVIDIA_VISIBLE_DEVICES"};
inline constexpr Vendor kAmd{"AMD",         &DeviceSettings::amd_gpu,
                             "amd.com/gpu", "AMD_VISIBLE_DEVICES",
                             true,          {"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"}};
inline constexpr Vendor kIntel{"Intel", &DeviceSettings::intel_gpu, "intel.com/gpu", "", true, {"ZE_AFFINITY_MASK"}};

/// Most CUDA images ask, whatever node they run on, and Slurm does not say whose GPUs it gives; a job that asks means
/// it.
enum class Asker : uint8_t { nobody, slurm, image, job };

struct Request {
  Asker asker = Asker::nobody;
  /// Names of GPUs as they were written, "all" among them; empty: no GPU.
  std::vector<std::string> devices;
  /// Names of the Container Device Interface; then nothing else here counts, the specifications say it all.
  std::vector<std::string> cdi_names;
  /// The job says that it wants none: "none", "void" or nothing at all in its variable.
  bool refused = false;
};

/// `host`: the job's environment; `container`: what the image and its configuration say. A variable that the host has,
/// even empty, beats the container's, and either beats Slurm. ErrorKind::usage names variable and word.
Result<Request> parse_request(const Vendor& vendor, const Environment& host, const Environment& container);

/// "0, 1,,2" -> "0", "1", "2".
std::vector<std::string_view> list_items(std::string_view list);

/// Whether a name of a device is one of the vendor's GPUs: "amd.com/gpu=0".
bool is_of_kind(std::string_view name, const Vendor& vendor);

}  // namespace situla::gpu
