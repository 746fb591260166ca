// Does a prepared container look to its tasks as COMPAT.md sections 1, 2 and 6 say?
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/userns/run_support.hpp"

namespace fs = std::filesystem;
using namespace situla;
using namespace situla::test;

TEST_CASE("a read-only container: files of the image, no writes, system mounts") {
  Scene scene;
  const Outcome outcome = scene.run({"cat /etc/rc", "touch /x", "touch /tmp/y && echo ok", "id -u", "touch /sys/x",
                                     "grep ' / ' /proc/self/mounts", "cat /etc/hosts > /dev/null && echo hosts"});
  REQUIRE(outcome.error.empty());
  CHECK(outcome.results.at("cat /etc/rc") == image_rc("/"));
  CHECK_THAT(outcome.results.at("touch /x"), Catch::Contains("Read-only file system"));
  CHECK(outcome.results.at("touch /tmp/y && echo ok") == "ok\n");
  CHECK(outcome.results.at("id -u") == std::to_string(getuid()) + "\n");
  CHECK_THAT(outcome.results.at("touch /sys/x"), Catch::Contains("Read-only file system") || Catch::Contains("ermission"));
  const std::string root = outcome.results.at("grep ' / ' /proc/self/mounts");
  CHECK_THAT(root, Catch::Contains("overlay") && Catch::Contains("ro,") && Catch::Contains("nosuid") && Catch::Contains("nodev"));
  CHECK(outcome.workdir == "/");
  CHECK(outcome.log.empty());
}

TEST_CASE("the image itself is never changed, also by a writable container") {
  Scene scene;
  scene.spec.writable = Tristate::yes;
  scene.scratch_name = "pyxis_7.0";
  const Outcome outcome = scene.run({"echo new > /etc/rc && rm /bin/true && echo ok", "cat /etc/rc"});
  REQUIRE(outcome.error.empty());
  CHECK(outcome.results.at("echo new > /etc/rc && rm /bin/true && echo ok") == "ok\n");
  CHECK(outcome.results.at("cat /etc/rc") == "new\n");
  CHECK(get_file(scene.root + "/etc/rc") == image_rc("/"));
  CHECK(fs::is_symlink(scene.root + "/bin/true"));
  CHECK(fs::is_empty(scene.data));
}
