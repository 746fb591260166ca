// What does NVIDIA's management library know of this node? The form in which situla-nvml tells it.
#pragma once

#include <string>
#include <vector>

#include "hooks/inject/inventory/inventory_fields.hpp"

namespace situla::nvidia {

/// A field that the library could not tell is empty.
struct NvmlGpu {
  uint32_t index = 0;  ///< NVML's
  std::string uuid;
  std::string bus_id;             ///< normalized_bus_id()
  std::optional<uint32_t> minor;  ///< of /dev/nvidia<minor>
  std::string model, brand, architecture;
  std::optional<bool> mig_enabled;  ///< nullopt: the library is older than MIG
  std::vector<MigDevice> mig;       ///< without nodes and files
};

struct NvmlAnswer {
  std::string driver_version, cuda_version;
  uint32_t count = 0;  ///< of GPUs that the library sees, also where it may not look at them
  std::vector<NvmlGpu> gpus;
  /// Indices of GPUs that fell off the bus: nobody can use them, and no call says which they are.
  std::vector<uint32_t> lost;
  std::vector<std::string> notes;  ///< what could not be asked, for the log
};

void fields(auto& archive, Is<NvmlGpu> auto& item) {
  archive.field("index", item.index);
  archive.field("uuid", item.uuid);
  archive.field("bus_id", item.bus_id);
  archive.field("minor", item.minor);
  archive.field("model", item.model);
  archive.field("brand", item.brand);
  archive.field("architecture", item.architecture);
  archive.field("mig_enabled", item.mig_enabled);
  archive.field("mig", item.mig);
}

void fields(auto& archive, Is<NvmlAnswer> auto& item) {
  archive.field("driver_version", item.driver_version);
  archive.field("cuda_version", item.cuda_version);
  archive.field("count", item.count);
  archive.field("gpus", item.gpus);
  archive.field("lost", item.lost);
  archive.field("notes", item.notes);
}

/// What situla-nvml prints.
struct NvmlReport {
  std::string error;  ///< empty: the answer counts
  NvmlAnswer answer;
};

void fields(auto& archive, Is<NvmlReport> auto& item) {
  archive.field("error", item.error);
  archive.field("answer", item.answer);
}

}  // namespace situla::nvidia
