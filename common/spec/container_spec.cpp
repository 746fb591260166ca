#include "common/spec/container_spec.hpp"

#include "common/base/wire.hpp"
#include "common/spec/image_reference.hpp"

namespace situla {
namespace {

// A NUL in a text would make a path mean one thing here and another to the kernel.
constexpr WireForm kForm{
    .what = "container specification", .version = 0x5350000c, .most_bytes = size_t{16} << 20U, .nul_in_text = false};

}  // namespace

std::string ContainerSpec::exact_image() const {
  if (pinned.empty()) return image;
  // What a tag meant is remembered for when no registry answers; also the tag that goes without saying.
  const auto reference = ImageReference::parse(image);
  const bool has_tag = !reference || reference->tag.empty() || image.ends_with(":" + reference->tag);
  return image + (has_tag ? "" : ":" + reference->tag) + "@" + pinned;
}

std::string ContainerSpec::serialize() const {
  return to_wire(*this, kForm);
}

Result<ContainerSpec> ContainerSpec::deserialize(std::string_view bytes) {
  return from_wire<ContainerSpec>(bytes, kForm);
}

}  // namespace situla
