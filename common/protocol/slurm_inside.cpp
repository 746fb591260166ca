#include "common/protocol/slurm_inside.hpp"

#include <algorithm>

#include "common/base/base64.hpp"
#include "common/base/text.hpp"
#include "common/base/wire.hpp"

namespace situla {
namespace {

constexpr WireForm kInput{"input of the Slurm proxy", 0x53500001, size_t{1} << 20U};

}  // namespace

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
