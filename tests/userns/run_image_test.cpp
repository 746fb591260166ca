// Does a user's own squashfs file become a container, by FUSE and by extraction?
#include <chrono>
#include <filesystem>
#include <thread>

#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/process/process.hpp"
#include "hooks/mount/image_mount.hpp"
#include "tests/support/skip.hpp"
#include "tests/userns/run_support.hpp"

namespace fs = std::filesystem;
using namespace situla;
using namespace situla::test;

namespace {

/// Replaces the scene's root directory by an image of it.
void pack(Scene& scene) {
  const std::string image = scene.directory / "image.sqsh";
  SpawnOptions options;
  options.program = "/usr/bin/mksquashfs";
  options.arguments = {"mksquashfs", scene.root, image, "-all-root", "-quiet", "-no-progress"};
  options.environment = {"PATH=/usr/bin:/bin"};
  auto child = spawn(options);
  REQUIRE(child);
  REQUIRE(child->wait()->success());
  scene.root = image;
  scene.kind = RootSource::Kind::image;
}

/// An extracted tree is removed by a process that waits for the container's end.
bool becomes_empty(const std::string& directory) {
  for (int i = 0; i < 6000 && !fs::is_empty(directory); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return fs::is_empty(directory);
}

}  // namespace

TEST_CASE("an image served by FUSE") {
  if (const auto available = fuse_available(); !available) SITULA_SKIP(available.error().message());
  Scene scene;
  pack(scene);
  scene.mount = MountKind::fuse;
  scene.scratch_name = "pyxis_1.0";
  const Outcome outcome = scene.run({"cat /etc/environment", "touch /x", "stat -c %u /bin/busybox"});
  REQUIRE(outcome.error.empty());
  CHECK_THAT(outcome.results.at("cat /etc/environment"), Catch::Contains("FROM_IMAGE"));
  CHECK_THAT(outcome.results.at("touch /x"), Catch::Contains("Read-only"));
  CHECK(outcome.results.at("stat -c %u /bin/busybox") == std::to_string(getuid()) + "\n");
  CHECK_FALSE(fs::exists(scene.data));
}

TEST_CASE("an image that is extracted leaves nothing") {
  Scene scene;
  pack(scene);
  scene.mount = MountKind::extract;
  scene.scratch_name = "pyxis_1.0";
  const Outcome outcome = scene.run({"cat /etc/environment", "touch /x"});
  REQUIRE(outcome.error.empty());
  CHECK_THAT(outcome.results.at("cat /etc/environment"), Catch::Contains("FROM_IMAGE"));
  CHECK_THAT(outcome.results.at("touch /x"), Catch::Contains("Read-only"));
  CHECK(outcome.scratch_path == scene.data + "/pyxis_1.0");
  CHECK(becomes_empty(scene.data));

  scene.spec.mounts = mounts("/does/not/exist:/x");
  CHECK_FALSE(scene.run({}).error.empty());
  CHECK(becomes_empty(scene.data));
}

TEST_CASE("a file that is no image says so, once and with a hint, however it would be mounted") {
  for (const MountKind mount : {MountKind::automatic, MountKind::fuse, MountKind::extract}) {
    if (mount != MountKind::extract && !fuse_available()) continue;
    Scene scene;
    scene.root = scene.directory / "garbage.sqsh";
    put_file(scene.root, std::string(9000, 'x'));
    scene.kind = RootSource::Kind::image;
    scene.mount = mount;
    scene.scratch_name = "pyxis_1.0";
    const Outcome outcome = scene.run({});
    CHECK_THAT(outcome.error, Catch::Contains("squashfs") && Catch::Contains("hint: "));
    CHECK(outcome.log.empty());
    CHECK((!fs::exists(scene.data) || becomes_empty(scene.data)));
  }
}

TEST_CASE("a scratch directory that is taken is left alone") {
  Scene scene;
  scene.spec.writable = Tristate::yes;
  scene.scratch_name = "pyxis_1.0";
  put_file(scene.data + "/pyxis_1.0/somebody", "else");
  const Outcome outcome = scene.run({"touch /x && echo ok"});
  REQUIRE(outcome.error.empty());
  CHECK(outcome.results.at("touch /x && echo ok") == "ok\n");
  CHECK_THAT(outcome.scratch_path, Catch::StartsWith(scene.data + "/pyxis_1.0."));
  CHECK(get_file(scene.data + "/pyxis_1.0/somebody") == "else");
}

TEST_CASE("a data path that cannot be written: changes stay in memory, with a warning") {
  Scene scene;
  scene.spec.writable = Tristate::yes;
  scene.scratch_name = "pyxis_1.0";
  put_file(scene.data, "a file");
  const Outcome outcome = scene.run({"touch /x && echo ok"});
  REQUIRE(outcome.error.empty());
  CHECK(outcome.results.at("touch /x && echo ok") == "ok\n");
  CHECK_THAT(outcome.log, Catch::Contains("kept in memory"));
}
