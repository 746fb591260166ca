// Does `start` behave like the command it runs? COMPAT.md 6.7: standard streams, exit code, arguments, terminal;
// nothing is left.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include <fcntl.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "hooks/mount/image_mount.hpp"
#include "hooks/run/launch.hpp"
#include "tests/userns/start_scene.hpp"

namespace fs = std::filesystem;
using namespace situla;
using namespace situla::test;

TEST_CASE("start: entrypoint, arguments, exit code, standard input") {
  StartScene scene;
  CHECK(scene.start({}).output == "default command\n");
  CHECK(scene.start({"sh", "-c", "echo $ENTRY \"$1\"; exit 7", "x", "a  b"}).output == "ran a  b\n");
  CHECK(scene.start({"sh", "-c", "exit 7"}).code == 7);
  CHECK(scene.start({"cat"}, "through standard input").output == "through standard input");
  CHECK(scene.start({"sh", "-c", "kill -TERM $$"}).signal == SIGTERM);
  const Ended missing = scene.start({"/no/such/program"});
  CHECK(missing.code != 0);
  CHECK_THAT(missing.output, Catch::Contains("/no/such/program"));
  CHECK(fs::is_empty(scene.directory / "runtime"));
}

TEST_CASE("start: without rc a word with spaces is a shell command") {
  StartScene scene;
  fs::remove(scene.root + "/etc/rc");
  CHECK(scene.start({"echo a; echo b"}).output == "a\nb\n");
  CHECK(scene.start({"echo", "a; b"}).output == "a; b\n");
}

TEST_CASE("start: --root, --rw, --mount, --env, --rc") {
  StartScene scene;
  put_file(scene.directory / "x/f", "content\n");
  put_file(scene.directory / "script", "echo script: \"$@\" $GIVEN $TAKEN\n");
  CHECK_THAT(scene.start({"touch", "/new"}).output, Catch::Contains("Read-only"));
  scene.request.spec.writable = Tristate::yes;
  CHECK(scene.start({"touch", "/new"}).code == 0);
  CHECK(fs::exists(scene.root + "/new"));
  scene.request.spec.remap_root = Tristate::yes;
  CHECK(scene.start({"id", "-u"}).output == "0\n");
  scene.request.mounts = {scene.directory / "x:/data:none:x-create=dir,bind,ro", "tmpfs:/scratch:x-create=dir,size=1m"};
  CHECK(scene.start({"sh", "-c", "cat /data/f; touch /data/g 2> /dev/null || echo ro; touch /scratch/a && echo rw"})
            .output == "content\nro\nrw\n");
  scene.request.mounts = {"/does/not/exist:/x"};
  CHECK_THAT(scene.start({"true"}).output, Catch::Contains("--mount: ") && Catch::Contains("/does/not/exist"));
  scene.request.mounts.clear();
  scene.host.set("TAKEN", "taken");
  scene.request.environment = {"GIVEN=a=b", "TAKEN"};
  scene.request.rc = scene.directory / "script";
  CHECK(scene.start({"one", "two"}).output == "script: one two a=b taken\n");
  scene.request.rc = "/does/not/exist";
  CHECK(scene.start({"one"}).code == 1);
}

TEST_CASE("start: the host's environment stays outside, but for what the files and options say") {
  StartScene scene;
  scene.host.set("HOST_ONLY", "1");
  scene.host.set("TERM", "test-term");
  const std::string output = scene.start({"env"}).output;
  CHECK_THAT(output, Catch::Contains("FROM_IMAGE=yes\n") && Catch::Contains("TERM=test-term\n") &&
                         !Catch::Contains("HOST_ONLY") && !Catch::Contains("ENROOT_"));
}

TEST_CASE("start: no descriptor of ours and no privilege gets in") {
  StartScene scene;
  const std::string output =
      scene.start({"sh", "-c", "ls /proc/self/fd | sort -n; grep -E 'NoNewPrivs|CapBnd|CapPrm' /proc/self/status"})
          .output;
  CHECK(output == "0\n1\n2\n3\nCapPrm:\t0000000000000000\nCapBnd:\t0000000000000000\nNoNewPrivs:\t1\n");
}

TEST_CASE("start: the terminal is the user's") {
  StartScene scene;
  scene.request.command = {"sh", "-c", "[ -t 0 ] && [ -t 1 ] && echo terminal; exit 4"};
  int controller = -1;
  const pid_t pid = forkpty(&controller, nullptr, nullptr, nullptr);
  REQUIRE(pid >= 0);
  if (pid == 0) scene.become();
  std::string output;
  char buffer[256];
  for (ssize_t size = 0; (size = read(controller, buffer, sizeof buffer)) > 0;)
    output.append(buffer, static_cast<size_t>(size));
  close(controller);
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  CHECK(output == "terminal\r\n");
  CHECK(WEXITSTATUS(status) == 4);
}

TEST_CASE("start: an image, served or extracted, and nothing is left") {
  StartScene scene;
  const std::string image = scene.directory / "image.sqsh";
  REQUIRE(std::system(
              ("mksquashfs " + scene.root + " " + image + " -all-root -quiet -no-progress > /dev/null").c_str()) == 0);
  scene.root = image;
  scene.request.root.kind = RootSource::Kind::image;
  for (const MountKind mount : {MountKind::fuse, MountKind::extract}) {
    if (mount == MountKind::fuse && !fuse_available()) continue;
    for (const Tristate writable : {Tristate::no, Tristate::yes}) {
      scene.request.root.mount = mount;
      scene.request.spec.writable = writable;
      const Ended ended =
          scene.start({"sh", "-c", "cat /etc/environment | grep -c .; touch /x 2> /dev/null && echo rw; exit 5"});
      CHECK(ended.output == (writable == Tristate::yes ? "3\nrw\n" : "3\n"));
      CHECK(ended.code == 5);
    }
  }
  for (int i = 0; i < 500 && !fs::is_empty(scene.directory / "temp"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(fs::is_empty(scene.directory / "temp"));
  CHECK(fs::is_empty(scene.directory / "runtime"));
  CHECK_FALSE(fs::exists(scene.data));
}
