#include "common/spec/container_spec.hpp"

#include "common/base/wire.hpp"

namespace situla {
namespace {

// A NUL in a text would make a path mean one thing here and another to the kernel.
constexpr WireForm kForm{
    .what = "container specification", .version = 0x53500006, .most_bytes = size_t{16} << 20U, .nul_in_text = false};

}  // namespace

std::string ContainerSpec::serialize() const {
  return to_wire(*this, kForm);
}

Result<ContainerSpec> ContainerSpec::deserialize(std::string_view bytes) {
  return from_wire<ContainerSpec>(bytes, kForm);
}

}  // namespace situla
