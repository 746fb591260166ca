// Which fields has each part of an Inventory in its document?
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

void fields(auto& archive, Is<Library> auto& item) {
  archive.path("path", item.path);
  archive.path("soname", item.soname);
  archive.field("other_links", item.other_links);
  archive.path("subdirectory", item.subdirectory);
  archive.field("capabilities", item.capabilities);
  archive.field("is_32bit", item.is_32bit);
}

void fields(auto& archive, Is<File> auto& item) {
  archive.path("path", item.path);
  archive.path("target", item.target);
  archive.field("capabilities", item.capabilities);
}

void fields(auto& archive, Is<Link> auto& item) {
  archive.path("path", item.path);
  archive.path("target", item.target);
  archive.field("capabilities", item.capabilities);
}

void fields(auto& archive, Is<Node> auto& item) {
  archive.path("path", item.path);
  std::string number = to_text(item.number);
  archive.field("number", number);
  if constexpr (!std::is_const_v<std::remove_reference_t<decltype(item)>>) {
    const auto parsed = parse_device_number(number);
    if (parsed) item.number = *parsed;
    if (!parsed) archive.refuse("number is none of a device: " + printable(number));
  }
}

void fields(auto& archive, Is<MigDevice> auto& item) {
  archive.field("index", item.index);
  archive.field("gpu_instance", item.gpu_instance);
  archive.field("compute_instance", item.compute_instance);
  archive.field("uuid", item.uuid);
  archive.field("gpu_instance_node", item.gpu_instance_node);
  archive.field("compute_instance_node", item.compute_instance_node);
  archive.path("gpu_instance_file", item.gpu_instance_file);
  archive.path("compute_instance_file", item.compute_instance_file);
  archive.field("graphics", item.graphics);
}

void fields(auto& archive, Is<Gpu> auto& item) {
  archive.field("uuid", item.uuid);
  archive.path("bus_id", item.bus_id);
  archive.field("model", item.model);
  archive.field("brand", item.brand);
  archive.field("architecture", item.architecture);
  archive.field("minor", item.minor);
  archive.field("node", item.node);
  archive.field("graphics_nodes", item.graphics_nodes);
  archive.field("mig_enabled", item.mig_enabled);
  archive.field("mig", item.mig);
}

void fields(auto& archive, Is<ControlNodes> auto& item) {
  archive.field("control", item.control);
  archive.field("uvm", item.uvm);
  archive.field("uvm_tools", item.uvm_tools);
  archive.field("modeset", item.modeset);
  archive.field("gdrdrv", item.gdrdrv);
  archive.field("gds", item.gds);
  archive.field("nvswitch", item.nvswitch);
  archive.field("infiniband", item.infiniband);
  archive.field("imex_channels", item.imex_channels);
  archive.field("mig_config", item.mig_config);
  archive.field("mig_monitor", item.mig_monitor);
}

void fields(auto& archive, Is<Inventory> auto& item) {
  archive.field("driver_version", item.driver_version);
  archive.field("cuda_version", item.cuda_version);
  archive.field("from_nvml", item.from_nvml);
  archive.field("gpus", item.gpus);
  archive.field("nodes", item.nodes);
  archive.field("libraries", item.libraries);
  archive.field("binaries", item.binaries);
  archive.field("firmware", item.firmware);
  archive.field("sockets", item.sockets);
  archive.field("configuration", item.configuration);
  archive.field("links", item.links);
}

void fields(auto& archive, Is<InventoryDocument> auto& item) {
  archive.field("version", item.version);
  archive.field("key", item.key);
  archive.field("inventory", item.inventory);
}

}  // namespace situla::nvidia
