// What does a CDI specification say? Versions 0.3.0 to 1.1.0, by the rules of the Container Device Interface; parsed
// once, checked completely.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.hpp"
#include "hooks/inject/cdi/value.hpp"
#include "hooks/inject/edits/edits.hpp"

namespace situla::cdi {

struct DeviceNode {
  std::string path;                    ///< inside, absolute
  std::string host_path;               ///< `path` where the file says nothing
  bool fifo = false;                   ///< type p
  char type = 0;                       ///< 'c' or 'b'; 0: what the host has
  std::optional<DeviceNumber> number;  ///< what the host had when the file was written; needs a type
};

struct Mount {
  std::string host_path, container_path;
  std::string type;  ///< "" and "none" bind
  std::vector<std::string> options;
};

/// Of the OCI runtime specification, in the order in which they run.
enum class HookStage : uint8_t { prestart, create_runtime, create_container, start_container, poststart, poststop };
std::string_view to_string(HookStage stage);

struct Hook {
  HookStage stage = HookStage::create_container;
  std::string path;
  std::vector<std::string> arguments;    ///< argv, with argv[0]
  std::vector<std::string> environment;  ///< "NAME=VALUE"
  std::chrono::seconds limit{0};         ///< 0: none said
};

struct Edits {
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<DeviceNode> nodes;
  std::vector<Mount> mounts;
  std::vector<Hook> hooks;
  std::vector<uint32_t> groups;          ///< additionalGids, without 0
  std::vector<std::string> net_devices;  ///< of the host
  bool intel_rdt = false;
};

struct Device {
  std::string name;  ///< "0", "all"
  Edits edits;
};

struct Spec {
  std::string file;  ///< where it was read from
  std::string version;
  std::string kind;  ///< "nvidia.com/gpu"
  Edits edits;       ///< once, for any of its devices
  std::vector<Device> devices;
};

/// ErrorKind::corrupt: "devices[2].containerEdits.mounts[0].hostPath: missing"; the caller adds the file.
Result<Spec> make_spec(const Value& document, const std::string& file);

}  // namespace situla::cdi
