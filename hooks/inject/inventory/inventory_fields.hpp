// Which fields has each part of an Inventory, and of what situla-nvml tells, in its document?
#pragma once

#include "hooks/inject/inventory/inventory.hpp"
#include "hooks/inject/inventory/json_fields.hpp"

namespace situla::nvidia {

/// What is kept of a node: an inventory, and the key of what it was made from (inventory_key()).
struct InventoryDocument {
  uint32_t version = 1;
  std::vector<std::string> key;
  Inventory inventory;
};

/// parse_inventory() trusts nothing: ErrorKind::corrupt, with the place.
std::string serialize(const InventoryDocument& document);
Result<InventoryDocument> parse_inventory(std::string_view text);

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

/// What situla-nvml prints.
struct NvmlReport {
  std::string error;  ///< empty: the answer counts
  NvmlAnswer answer;
};

void fields(auto& archive, Is<Library> auto& it) {
  archive("path", Path{it.path}, "soname", Path{it.soname}, "other_links", it.other_links, "subdirectory",
          Path{it.subdirectory}, "capabilities", it.capabilities, "is_32bit", it.is_32bit);
}

void fields(auto& archive, Is<File> auto& it) {
  archive("path", Path{it.path}, "target", Path{it.target}, "capabilities", it.capabilities);
}

void fields(auto& archive, Is<Node> auto& it) {
  std::string number = to_text(it.number);
  archive("path", Path{it.path}, "number", number);
  if constexpr (!std::is_const_v<std::remove_reference_t<decltype(it)>>) {
    const auto parsed = parse_device_number(number);
    if (parsed) it.number = *parsed;
    if (!parsed) archive.refuse("number is none of a device: " + printable(number));
  }
}

void fields(auto& archive, Is<MigDevice> auto& it) {
  archive("index", it.index, "gpu_instance", it.gpu_instance, "compute_instance", it.compute_instance, "uuid", it.uuid,
          "gpu_instance_node", it.gpu_instance_node, "compute_instance_node", it.compute_instance_node,
          "gpu_instance_file", Path{it.gpu_instance_file}, "compute_instance_file", Path{it.compute_instance_file},
          "graphics", it.graphics);
}

void fields(auto& archive, Is<Gpu> auto& it) {
  archive("uuid", it.uuid, "bus_id", Path{it.bus_id}, "model", it.model, "brand", it.brand, "architecture",
          it.architecture, "minor", it.minor, "node", it.node, "graphics_nodes", it.graphics_nodes, "mig_enabled",
          it.mig_enabled, "mig", it.mig);
}

void fields(auto& archive, Is<ControlNodes> auto& it) {
  archive("control", it.control, "uvm", it.uvm, "uvm_tools", it.uvm_tools, "modeset", it.modeset, "gdrdrv", it.gdrdrv,
          "gds", it.gds, "nvswitch", it.nvswitch, "infiniband", it.infiniband, "imex_channels", it.imex_channels,
          "mig_config", it.mig_config, "mig_monitor", it.mig_monitor);
}

void fields(auto& archive, Is<Inventory> auto& it) {
  archive("driver_version", it.driver_version, "cuda_version", it.cuda_version, "from_nvml", it.from_nvml, "gpus",
          it.gpus, "nodes", it.nodes, "libraries", it.libraries, "binaries", it.binaries, "firmware", it.firmware,
          "sockets", it.sockets, "configuration", it.configuration, "links", it.links);
}

void fields(auto& archive, Is<InventoryDocument> auto& it) {
  archive("version", it.version, "key", it.key, "inventory", it.inventory);
}

void fields(auto& archive, Is<NvmlGpu> auto& it) {
  archive("index", it.index, "uuid", it.uuid, "bus_id", it.bus_id, "minor", it.minor, "model", it.model, "brand",
          it.brand, "architecture", it.architecture, "mig_enabled", it.mig_enabled, "mig", it.mig);
}

void fields(auto& archive, Is<NvmlAnswer> auto& it) {
  archive("driver_version", it.driver_version, "cuda_version", it.cuda_version, "count", it.count, "gpus", it.gpus,
          "lost", it.lost, "notes", it.notes);
}

void fields(auto& archive, Is<NvmlReport> auto& it) {
  archive("error", it.error, "answer", it.answer);
}

}  // namespace situla::nvidia
