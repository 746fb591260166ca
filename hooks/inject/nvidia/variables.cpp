#include "hooks/inject/nvidia/variables.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "common/base/text.hpp"

namespace situla::nvidia {
namespace {

using gpu::list_items;

constexpr std::string_view kCapabilities = "NVIDIA_DRIVER_CAPABILITIES";
constexpr std::string_view kImexChannels = "NVIDIA_IMEX_CHANNELS";
constexpr std::string_view kRequire = "NVIDIA_REQUIRE_";
constexpr std::string_view kRequireJetPack = "NVIDIA_REQUIRE_JETPACK";
constexpr uint32_t kMaxImexChannel = (1U << 20U) - 1;

struct CapabilityName {
  std::string_view name;
  CapabilitySet bits;
};
constexpr std::array<CapabilityName, 8> kCapabilityNames = {{
    {"utility", kUtility},
    {"compute", kCompute},
    {"video", kVideo},
    {"graphics", kGraphics},
    {"display", kDisplay},
    {"ngx", kNgx},
    {"compat32", kCompat32},
    {"all", kUtility | kCompute | kVideo | kGraphics | kDisplay | kNgx | kCompat32},
}};

/// The host's value wins if it is set, even to nothing: that is how a job switches off what its image asks for.
class Variables {
 public:
  Variables(const Environment& host, const Environment& container) : host_(host), container_(container) {}

  [[nodiscard]] std::string_view get(std::string_view name) const {
    if (const auto value = host_.get(name)) return *value;
    return container_.get(name).value_or("");
  }
  [[nodiscard]] std::vector<std::string_view> with_prefix(std::string_view prefix) const {
    std::vector<std::string_view> names;
    for (const Environment* environment : {&host_, &container_})
      for (const auto& [name, value] : environment->entries())
        if (name.starts_with(prefix) && std::find(names.begin(), names.end(), name) == names.end())
          names.emplace_back(name);
    return names;
  }

 private:
  const Environment& host_;
  const Environment& container_;
};

Result<CapabilitySet> parse_capabilities(std::string_view value) {
  CapabilitySet set = 0;
  for (const std::string_view piece : split_words(value)) {
    for (const std::string_view word : list_items(piece)) {
      const auto* const known = std::find_if(kCapabilityNames.begin(), kCapabilityNames.end(),
                                             [&](const CapabilityName& entry) { return entry.name == word; });
      if (known == kCapabilityNames.end()) {
        std::vector<std::string_view> names;
        for (const CapabilityName& entry : kCapabilityNames) names.push_back(entry.name);
        return fail(Error(ErrorKind::usage, "Unknown NVIDIA driver capability: " + printable(word))
                        .with_code(ErrorCode::gpu_request)
                        .with_hint(suggestion(word, names, std::string(kCapabilities) + " knows")));
      }
      set = static_cast<CapabilitySet>(set | known->bits);
      if (known->name == "all") return set;  // enroot's hook reads no further
    }
  }
  return set == 0 ? static_cast<CapabilitySet>(kUtility) : set;
}

Result<ImexRequest> parse_imex(std::string_view value) {
  ImexRequest request;
  for (const std::string_view word : list_items(value)) {
    const auto number = parse_unsigned(word);
    if (to_lower(word) == "all")
      request.all = true;
    else if (number && *number <= kMaxImexChannel)
      request.channels.push_back(static_cast<uint32_t>(*number));
    else
      return fail(Error(ErrorKind::usage, std::string(kImexChannels) + ": " + printable(word) +
                                              ": expected channel numbers up to " + std::to_string(kMaxImexChannel) +
                                              ", or all")
                      .with_code(ErrorCode::gpu_request));
  }
  return request;
}

/// JetPack's conditions are about Jetson boards, in a language that nobody else speaks; NVIDIA's toolkit skips them,
/// too.
std::vector<NamedRequirement> requirements(const Variables& variables) {
  std::vector<NamedRequirement> found;
  if (!variables.get("NVIDIA_DISABLE_REQUIRE").empty()) return found;
  for (const std::string_view name : variables.with_prefix(kRequire))
    if (!name.starts_with(kRequireJetPack)) found.push_back({std::string(name), std::string(variables.get(name))});
  return found;
}

}  // namespace

Result<DriverRequest> parse_request(const Environment& host, const Environment& container) {
  const Variables variables(host, container);
  DriverRequest request;
  TRY_ASSIGN(static_cast<gpu::Request&>(request), gpu::parse_request(gpu::kNvidia, host, container));
  if (request.asker == Asker::nobody || !request.cdi_names.empty()) return request;
  request.driver = true;
  TRY_ASSIGN(request.capabilities, parse_capabilities(variables.get(kCapabilities)));
  request.requirements = requirements(variables);
  // Names of single GPUs do nothing here, as with NVIDIA's own tool.
  request.mig_config = variables.get("NVIDIA_MIG_CONFIG_DEVICES") == "all";
  request.mig_monitor = variables.get("NVIDIA_MIG_MONITOR_DEVICES") == "all";
  TRY_ASSIGN(request.imex, parse_imex(variables.get(kImexChannels)));
  request.imex.of_image = host.get_or(kImexChannels, "").empty();
  const auto enabled = [&](std::string_view name) { return variables.get(name) == "enabled"; };
  request.gds = enabled("NVIDIA_GDS");
  request.mofed = enabled("NVIDIA_MOFED");
  request.gdrcopy = enabled("NVIDIA_GDRCOPY");
  request.nvswitch = enabled("NVIDIA_NVSWITCH");
  return request;
}

}  // namespace situla::nvidia
