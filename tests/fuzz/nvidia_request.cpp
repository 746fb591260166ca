#include <cstdlib>

#include "common/spec/device_name.hpp"
#include "hooks/inject/nvidia/params.hpp"
#include "hooks/inject/nvidia/variables.hpp"
#include "tests/fuzz/target.hpp"

/// NVIDIA_* of an image and of a job, NUL between variables and two between the two.
void situla::fuzz(std::string_view bytes) {
  constexpr std::string_view kBetween("\0\0", 2);
  const size_t end = bytes.find(kBetween);
  const Environment image = Environment::from_block(bytes.substr(0, end));
  const Environment job =
      Environment::from_block(end == bytes.npos ? std::string_view() : bytes.substr(end + kBetween.size()));
  const auto request = nvidia::parse_request(job, image);
  if (!request) {
    if (request.error().kind() != ErrorKind::usage) std::abort();
    return;
  }
  if (!request->devices.empty() && !request->driver) std::abort();
  for (const std::string& name : request->cdi_names)
    if (!is_device_name(name)) std::abort();
  for (const uint32_t channel : request->imex.channels)
    if (channel >= 1U << 20U) std::abort();
  // What the driver reads in a container, whatever the host's file says.
  const std::string params = nvidia::without_node_changes(bytes);
  if (nvidia::without_node_changes(params) != params) std::abort();
}
