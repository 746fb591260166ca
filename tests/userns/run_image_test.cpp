// Does a user's own squashfs file become a container, by FUSE and by extraction?
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include <sys/stat.h>
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

namespace {

/// Images of one tree, each with its number.
std::string data_image(const Scene& scene, int number) {
  const std::string tree = scene.directory / "shard",
                    image = scene.directory / ("shard" + std::to_string(number) + ".sqsh");
  fs::remove_all(tree);
  put_file(tree + "/number", std::to_string(number) + "\n");
  put_file(tree + "/deep/er/text", "text of " + std::to_string(number) + "\n", 0600);
  put_file(tree + "/large", std::string(size_t{3} << 20U, static_cast<char>('a' + number % 26)));
  fs::create_symlink("deep/er", tree + "/link");
  SpawnOptions options;
  options.program = "/usr/bin/mksquashfs";
  options.arguments = {"mksquashfs", tree, image, "-all-root", "-quiet", "-no-progress"};
  options.environment = {"PATH=/usr/bin:/bin"};
  auto child = spawn(options);
  REQUIRE(child);
  REQUIRE(child->wait()->success());
  return image;
}

/// Processes that hold an image of this scene open.
int servers(const Scene& scene) {
  const std::string images = fs::path(scene.directory.path()).filename() / "shard";
  int count = 0;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    std::error_code error;
    bool holds = false;
    for (auto fd = fs::directory_iterator(entry.path() / "fd", error); !error && fd != fs::end(fd);
         fd.increment(error)) {
      std::error_code gone;
      holds = holds || fs::read_symlink(fd->path(), gone).string().find(images) != std::string::npos;
    }
    count += holds ? 1 : 0;
  }
  return count;
}

}  // namespace

TEST_CASE("images as mounts: whole, a directory or file of one, many of them, all by one process") {
  if (const auto available = fuse_available(); !available) SITULA_SKIP(available.error().message());
  Scene scene;
  std::string option;
  for (int number = 0; number < 20; ++number)
    option += (number == 0 ? "" : ",") + data_image(scene, number) + ":/data/" + std::to_string(number) + ":sqsh";
  const std::string first = scene.directory / "shard0.sqsh";
  option += "," + first + "/deep:/deep:sqsh," + first + "/link/text:/text:sqsh+noexec," + first + "/link:/link:sqsh";
  scene.spec.mounts = mounts(option);
  scene.spec.writable = Tristate::yes;
  const Outcome outcome =
      scene.run({"cat /data/*/number | sort -n | busybox tr '\\n' ' '", "cat /data/7/link/text",
                 "cat /deep/er/text /text /link/text", "stat -c %u /data/3/number /deep", "touch /data/3/x",
                 "grep -c ' fuse' /proc/mounts", "grep ' /text ' /proc/mounts | cut -d' ' -f4 | cut -d, -f1-4",
                 "busybox tr -d k </data/10/large | busybox wc -c", "cat /data/1*/large | busybox wc -c"},
                [&] { return std::to_string(servers(scene)); });
  REQUIRE(outcome.error == "");
  const auto& shown = outcome.results;
  CHECK(shown.at("cat /data/*/number | sort -n | busybox tr '\\n' ' '") ==
        "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 ");
  CHECK(shown.at("cat /data/7/link/text") == "text of 7\n");
  CHECK(shown.at("cat /deep/er/text /text /link/text") == "text of 0\ntext of 0\ntext of 0\n");
  const std::string uid = std::to_string(getuid());
  CHECK(shown.at("stat -c %u /data/3/number /deep") == uid + "\n" + uid + "\n");
  CHECK_THAT(shown.at("touch /data/3/x"), Catch::Contains("Read-only"));
  CHECK(shown.at("grep -c ' fuse' /proc/mounts") == "23\n");
  CHECK_THAT(shown.at("grep ' /text ' /proc/mounts | cut -d' ' -f4 | cut -d, -f1-4"),
             Catch::Contains("ro,nosuid,nodev,noexec"));
  CHECK(shown.at("busybox tr -d k </data/10/large | busybox wc -c") == "0\n");
  CHECK(shown.at("cat /data/1*/large | busybox wc -c") == std::to_string(11 * (3 << 20)) + "\n");
  CHECK(shown.at("inside") == "1");
  for (int i = 0; i < 1000 && servers(scene) > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(servers(scene) == 0);
}

TEST_CASE("images as mounts on a kernel without the new mount calls") {
  if (const auto available = fuse_available(); !available) SITULA_SKIP(available.error().message());
  Scene scene;
  scene.api = MountApi::classic;
  scene.spec.writable = Tristate::yes;
  const std::string image = data_image(scene, 1);
  scene.spec.mounts =
      mounts(image + ":/data:sqsh," + image + "/number:/number:sqsh+noexec," + image + "/deep:/deep:sqsh");
  const Outcome outcome = scene.run(
      {"cat /data/number /number /deep/er/text", "touch /data/x", "grep -c ' /number .*noexec' /proc/mounts"});
  REQUIRE(outcome.error == "");
  CHECK(outcome.results.at("cat /data/number /number /deep/er/text") == "1\n1\ntext of 1\n");
  CHECK_THAT(outcome.results.at("touch /data/x"), Catch::Contains("Read-only"));
  CHECK(outcome.results.at("grep -c ' /number .*noexec' /proc/mounts") == "1\n");
}

TEST_CASE("an image that cannot be mounted says which and why, and nofail leaves it out") {
  if (const auto available = fuse_available(); !available) SITULA_SKIP(available.error().message());
  Scene scene;
  const std::string image = data_image(scene, 1), garbage = scene.directory / "garbage.sqsh";
  put_file(garbage, std::string(9000, 'x'));
  const auto error = [&](const std::string& option) {
    scene.spec.mounts = mounts(option);
    return scene.run({}).error;
  };
  CHECK_THAT(error(garbage + ":/data:sqsh"),
             Catch::Contains("--container-mounts: mount image " + garbage + " on /data"));
  CHECK_THAT(error(image + "/nothing:/data:sqsh"), Catch::Contains("nothing"));
  CHECK_THAT(error(image + "/number:/etc:sqsh"), Catch::Contains("a directory"));
  CHECK_THAT(error("/dev/null:/data:sqsh"), Catch::Contains("/dev/null"));
  scene.spec.mounts = mounts(garbage + ":/data:sqsh+nofail," + image + ":/good:sqsh");
  scene.spec.writable = Tristate::yes;
  const Outcome outcome = scene.run({"cat /good/number", "ls /data"});
  REQUIRE(outcome.error == "");
  CHECK(outcome.results.at("cat /good/number") == "1\n");
  CHECK_THAT(outcome.log, Catch::Contains("garbage.sqsh"));
}

TEST_CASE("images that are left out do not take the place of those after them") {
  if (const auto available = fuse_available(); !available) SITULA_SKIP(available.error().message());
  Scene scene;
  scene.spec.writable = Tristate::yes;
  const std::string garbage = scene.directory / "garbage.sqsh", gone = scene.directory / "gone.sqsh";
  put_file(garbage, std::string(9000, 'x'));
  std::string option;
  for (int number = 0; number < 20; ++number) {
    const std::string image = data_image(scene, number), name = std::to_string(number);
    option += image + ":/data/" + name + ":sqsh,";
    if (number % 3 == 0) option += garbage + ":/bad/" + name + ":sqsh+nofail,";
    if (number % 4 == 1) option += gone + ":/bad/" + name + ":sqsh+nofail,";
    // Before it is asked for.
    if (number % 5 == 2) option += image + ":/etc/environment/x:sqsh+x-create=dir+nofail,";
    if (number % 7 == 3) option += image + "/none:/bad/" + name + ":sqsh+nofail,";
  }
  option.pop_back();
  scene.spec.mounts = mounts(option);
  const Outcome outcome =
      scene.run({"for i in /data/*; do read -r n <$i/number; [ $i = /data/$n ] || echo $i is $n; done; echo all",
                 "ls /data | busybox wc -l", "cat /bad/*/number || echo none"});
  REQUIRE(outcome.error == "");
  CHECK(outcome.results.at("for i in /data/*; do read -r n <$i/number; [ $i = /data/$n ] || echo $i is $n; done; "
                           "echo all") == "all\n");
  CHECK(outcome.results.at("ls /data | busybox wc -l") == "20\n");
  CHECK_THAT(outcome.results.at("cat /bad/*/number || echo none"), Catch::Contains("none"));
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
