// Does `start` behave like the command it runs? COMPAT.md 6.7: standard streams, exit code, arguments, terminal;
// nothing is left.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <thread>

#include <fcntl.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "hooks/mount/image_mount.hpp"
#include "hooks/run/launch.hpp"
#include "tests/userns/start_scene.hpp"

namespace fs = std::filesystem;
using namespace situla;
using namespace situla::test;

namespace {

/// Mount point -> what is said of it last.
using Mounts = std::map<std::string, std::vector<std::string>>;

/// The steps of a plan that leave a mount: "bind /a on /b [recursive, ro]  (--mount)".
Mounts planned_mounts(const std::string& plan) {
  Mounts mounts;
  for (const std::string_view line : split_nonempty(plan, '\n')) {
    const size_t on = line.find(" on "), origin = line.rfind("  (");
    if (on == std::string_view::npos || line.starts_with("run ")) continue;
    const std::string_view rest = line.substr(on + 4, origin - on - 4);
    const size_t options = rest.find(" [");
    std::vector<std::string> words;
    if (options != std::string_view::npos)
      for (const std::string_view word : split(rest.substr(options + 2, rest.size() - options - 3), ','))
        words.emplace_back(trim(word));
    mounts[std::string(rest.substr(0, options))] = words;
  }
  return mounts;
}

/// Those of a mountinfo table, proc(5), with the options of each mount.
Mounts table_mounts(const std::string& table) {
  Mounts mounts;
  for (const std::string_view line : split_nonempty(table, '\n')) {
    const auto fields = split_words(line);
    REQUIRE(fields.size() > 6);
    std::vector<std::string> options;
    for (const std::string_view option : split(fields[5], ',')) options.emplace_back(option);
    mounts[std::string(fields[4])] = options;
  }
  return mounts;
}

bool contains(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace

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

TEST_CASE("start: a dry run says what /proc/self/mountinfo shows of the container, and starts nothing") {
  StartScene scene;
  put_file(scene.directory / "x/f", "content\n");
  scene.put_hook("60-site.sh", "touch '" + scene.directory / "ran" + "'\n");
  scene.request.start.mounts = {scene.directory / "x:/data:none:x-create=dir,bind,ro,nosuid",
                                "tmpfs:/scratch:tmpfs:x-create=dir,size=1m,noexec",
                                scene.directory / "x/f:/data/f:none:bind"};
  scene.dry_run = true;
  const Ended shown = scene.start({"touch", scene.directory / "ran"});
  CHECK(shown.code == 0);
  CHECK_FALSE(fs::exists(scene.directory / "ran"));
  CHECK_THAT(shown.output,
             Catch::Contains("bind " + scene.directory / "x on /data [ro, nosuid, create directory]  (--mount)\n"));
  CHECK_THAT(shown.output, Catch::Contains("run " + scene.sysconf + "/hooks.d/60-site.sh\n"));
  CHECK_THAT(shown.output, Catch::Contains("file /etc/passwd\n"));
  scene.dry_run = false;
  const Ended started = scene.start({"cat", "/proc/self/mountinfo"});
  REQUIRE(started.code == 0);
  CHECK(fs::exists(scene.directory / "ran"));
  const Mounts planned = planned_mounts(shown.output), there = table_mounts(started.output);
  CHECK(planned.size() >= 5);
  for (const auto& [target, words] : planned) {
    INFO(target << "\n" << shown.output << started.output);
    if (contains(words, "if possible") && !there.contains(target)) continue;
    REQUIRE(there.contains(target));
    for (const std::string flag : {"ro", "nosuid", "nodev", "noexec"})
      if (contains(words, flag)) CHECK(contains(there.at(target), flag));
  }
  for (const auto& [target, options] : there) {
    INFO(target << "\n" << shown.output << started.output);
    const std::string place = target;
    CHECK((place == "/" || std::any_of(planned.begin(), planned.end(), [&](const auto& step) {
             return place == step.first || place.starts_with(step.first + "/");
           })));
  }
}

TEST_CASE("start: without rc a word with spaces is a shell command") {
  StartScene scene;
  fs::remove(scene.root + "/etc/rc");
  CHECK(scene.start({"echo a; echo b"}).output == "a\nb\n");
  CHECK(scene.start({"echo", "a; b"}).output == "a; b\n");
}

TEST_CASE("start: an image without a shell has to be told which program to run") {
  StartScene scene;
  fs::remove_all(scene.root + "/bin");
  CHECK_THAT(scene.start({}).output,
             Catch::EndsWith("the image has no shell [command]\nhint: say which program of the image to run\n"));
  CHECK_THAT(scene.start({"nothing"}).output,
             Catch::EndsWith("execute nothing: not found in the container [command]\n"));
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
  scene.request.start.mounts = {scene.directory / "x:/data:none:x-create=dir,bind,ro",
                                "tmpfs:/scratch:x-create=dir,size=1m"};
  CHECK(scene.start({"sh", "-c", "cat /data/f; touch /data/g 2> /dev/null || echo ro; touch /scratch/a && echo rw"})
            .output == "content\nro\nrw\n");
  scene.request.start.mounts = {"/does/not/exist:/x"};
  CHECK_THAT(scene.start({"true"}).output, Catch::Contains("--mount: ") && Catch::Contains("/does/not/exist"));
  scene.request.start.mounts.clear();
  scene.host.set("TAKEN", "taken");
  scene.request.start.environment = {"GIVEN=a=b", "TAKEN"};
  scene.request.start.rc = scene.directory / "script";
  CHECK(scene.start({"one", "two"}).output == "script: one two a=b taken\n");
  scene.request.start.rc = "/does/not/exist";
  CHECK(scene.start({"one"}).code == 1);
}

TEST_CASE("start: a mount of what the stage lies beneath does not show the container's own root once more") {
  StartScene scene;
  const std::string host = scene.directory.path();
  put_file(scene.directory / "beside", "beside\n");
  scene.request.spec.mounts = mounts(host + ":/host," + host + ":/again");
  const Ended ended =
      scene.start({"sh", "-c",
                   "cat /host/beside /again/beside; find /host/runtime /again/runtime -mindepth 1 -name rootfs; "
                   "grep -c ' /host/.*/rootfs' /proc/self/mountinfo; true"});
  CHECK(ended.output == "beside\nbeside\n0\n");
  CHECK(ended.code == 0);
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
  for (int i = 0; i < 6000 && !fs::is_empty(scene.directory / "temp"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(fs::is_empty(scene.directory / "temp"));
  CHECK(fs::is_empty(scene.directory / "runtime"));
  CHECK_FALSE(fs::exists(scene.data));
}
