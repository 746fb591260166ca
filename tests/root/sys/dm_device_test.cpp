// Do several block devices become one, does it go with its last user, and what is removed of those whose maker was
// killed?
#include "common/sys/mount/dm_device.hpp"

#include <cstdlib>

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "common/sys/mount/loop_device.hpp"
#include "common/sys/socket.hpp"
#include "tests/support/skip.hpp"

using namespace situla;

namespace {

// Of this run alone: names are the whole machine's.
const std::string kPrefix = "situla-test-" + std::to_string(getpid()) + "-";
const std::string kLabel = kPrefix + "loop";
constexpr uint64_t kSector = 512;

std::string sectors(char of, uint64_t count) {
  return std::string(count * kSector, of);
}

LoopDevice device_of(const std::string& bytes) {
  const auto memory = sealed_memory("test", bytes);
  REQUIRE(memory);
  auto device = LoopDevice::attach(memory->get(), kLabel);
  REQUIRE(device);
  return std::move(*device);
}

/// The middle of eight sectors is another device's.
DmDevice make_device() {
  const LoopDevice whole = device_of(sectors('a', 4) + sectors('b', 4)), own = device_of(sectors('x', 2));
  auto device = DmDevice::make(kPrefix, {{whole.fd(), 0, 3}, {own.fd(), 0, 2}, {whole.fd(), 5, 3}});
  REQUIRE(device);
  return std::move(*device);
}

std::string read_device(int device) {
  std::string bytes(9 * kSector, '\0');
  const ssize_t size = pread(device, bytes.data(), bytes.size(), 0);
  bytes.resize(size < 0 ? 0 : static_cast<size_t>(size));
  return bytes;
}

std::string expected() {
  return sectors('a', 3) + sectors('x', 2) + sectors('b', 3);
}

/// Other programs (udev) may have it open for a moment.
template <typename Condition>
bool soon(const Condition& condition) {
  for (int i = 0; i < 200 && !condition(); ++i) usleep(50000);
  return condition();
}

bool is_gone(const std::string& path) {
  return access(("/sys/block/" + path.substr(5)).c_str(), F_OK) != 0 && LoopDevice::count(kLabel) == 0;
}

bool dmsetup(const std::string& arguments) {
  return std::system(("dmsetup " + arguments + " >/dev/null 2>&1").c_str()) == 0;
}

}  // namespace

#define SITULA_NEEDS_DM()                                     \
  do {                                                        \
    const auto available = dm_available();                    \
    if (!available) SITULA_SKIP(available.error().message()); \
  } while (false)

TEST_CASE("pieces of two devices read as one, and nobody writes") {
  SITULA_NEEDS_DM();
  const DmDevice device = make_device();
  const auto reader = open_file(device.path(), O_RDONLY);
  REQUIRE(reader);
  CHECK(read_device(reader->get()) == expected());
  const UniqueFd writer(open(device.path().c_str(), O_RDWR | O_CLOEXEC));
  CHECK((!writer || pwrite(writer.get(), "y", 1, 0) != 1));
}

TEST_CASE("a device goes with its last user, whoever that is") {
  SITULA_NEEDS_DM();
  std::string path;
  UniqueFd reader;
  {
    const DmDevice device = make_device();
    path = device.path();
    auto opened = open_file(path, O_RDONLY);
    REQUIRE(opened);
    reader = std::move(*opened);
  }
  CHECK(read_device(reader.get()) == expected());
  reader.reset();
  CHECK(soon([&] { return is_gone(path); }));
}

TEST_CASE("pieces that are not there make no device") {
  SITULA_NEEDS_DM();
  const LoopDevice whole = device_of(sectors('a', 8));
  const auto device = DmDevice::make(kPrefix, {{whole.fd(), 6, 8}});
  REQUIRE_FALSE(device);
  if (dmsetup("version")) CHECK_FALSE(dmsetup("ls | grep -q " + kPrefix));
}

TEST_CASE("what a killed maker left is removed, and nothing else") {
  SITULA_NEEDS_DM();
  if (!dmsetup("version")) SITULA_SKIP("dmsetup is not installed");
  const std::string left = kPrefix + "left", foreign = kPrefix + "foreign";
  const std::string other = "other-" + left;
  REQUIRE(dmsetup("create " + left + " --uuid SITULA-" + left + " --notable"));
  REQUIRE(dmsetup("create " + foreign + " --uuid OTHER-" + foreign + " --notable"));
  REQUIRE(dmsetup("create " + other + " --uuid SITULA-" + other + " --notable"));
  const DmDevice used = make_device();
  DmDevice::remove_unused(kPrefix);
  CHECK_FALSE(dmsetup("info " + left));
  CHECK(dmsetup("remove " + foreign));
  CHECK(dmsetup("remove " + other));
  const auto reader = open_file(used.path(), O_RDONLY);
  REQUIRE(reader);
  CHECK(read_device(reader->get()) == expected());
}
