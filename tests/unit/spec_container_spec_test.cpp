// Does a container's specification survive the way to the builder, and nothing else?
#include <random>

#include <catch2/catch.hpp>

#include "common/spec/container_spec.hpp"

using namespace situla;
using namespace std::string_literals;

namespace {

ContainerSpec full_spec() {
  ContainerSpec spec;
  spec.image = "registry.test/debian:12";
  spec.pinned = "sha256:" + std::string(64, 'a');
  spec.mounts = *parse_mount_options("/a:/b:ro,tmpfs:/c,umount:/d");
  spec.workdir = "/work";
  spec.keep_env = {"A", "B"};
  spec.variables = {"C=${PATH}", "D="};
  spec.devices = {"nvidia.com/gpu=0", "situla.dev/hca=all"};
  spec.mount_home = Tristate::yes;
  spec.remap_root = Tristate::no;
  spec.name = "x";
  spec.directory = "pyxis_7_x";
  spec.name_flag = NameFlag::no_exec;
  spec.save = "image.sqsh";
  spec.entrypoint = Tristate::yes;
  spec.entrypoint_log = true;
  spec.unshare = {.pid = true, .net = false, .ipc = true, .uts = false};
  spec.progress = {120, 40, "node1, first of 4: ", true};
  return spec;
}

}  // namespace

TEST_CASE("round trip") {
  for (const ContainerSpec& spec : {ContainerSpec(), full_spec()}) {
    const auto back = ContainerSpec::deserialize(spec.serialize());
    REQUIRE(back);
    CHECK(*back == spec);
  }
}

TEST_CASE("what a tag means is asked for beside the tag") {
  ContainerSpec spec;
  const auto exact = [&](const std::string& image, const std::string& pinned) {
    spec.image = image;
    spec.pinned = pinned;
    return spec.exact_image();
  };
  const std::string digest = "sha256:" + std::string(64, 'a');
  CHECK(exact("registry.test/debian:12", "") == "registry.test/debian:12");
  CHECK(exact("registry.test/debian:12", digest) == "registry.test/debian:12@" + digest);
  CHECK(exact("registry.test:5000#debian", digest) == "registry.test:5000#debian:latest@" + digest);
  CHECK(exact("ubuntu", digest) == "ubuntu:latest@" + digest);
}

TEST_CASE("cut short, too long, of another version") {
  const std::string bytes = full_spec().serialize();
  for (size_t size = 0; size < bytes.size(); ++size) {
    INFO(size);
    const auto back = ContainerSpec::deserialize(std::string_view(bytes).substr(0, size));
    REQUIRE_FALSE(back);
    CHECK(back.error().kind() == ErrorKind::corrupt);
  }
  CHECK_FALSE(ContainerSpec::deserialize(bytes + "x"));
  std::string other = bytes;
  other[0] = 'Z';
  CHECK_FALSE(ContainerSpec::deserialize(other));
}

TEST_CASE("strings with a NUL and unknown enumerators are refused") {
  ContainerSpec spec;
  spec.workdir = "/a\0b"s;
  CHECK_FALSE(ContainerSpec::deserialize(spec.serialize()));
  std::string bytes = ContainerSpec().serialize();
  constexpr size_t kBehind = 14;  // what is told of progress follows the last enumerator
  bytes[bytes.size() - kBehind] = 3;
  CHECK_FALSE(ContainerSpec::deserialize(bytes));
}

TEST_CASE("arbitrary bytes neither crash nor allocate without end") {
  std::mt19937 random(1);
  const std::string good = full_spec().serialize();
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good;
    for (unsigned changes = 1 + random() % 4; changes > 0; --changes)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    if (const auto spec = ContainerSpec::deserialize(bytes)) CHECK(spec->serialize() == bytes);
  }
}
