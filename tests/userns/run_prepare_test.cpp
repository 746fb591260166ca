// Does a prepared container look to its tasks as COMPAT.md sections 1, 2 and 6 say?
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include <unistd.h>

#include <catch2/catch.hpp>

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
  CHECK_THAT(outcome.results.at("touch /sys/x"),
             Catch::Contains("Read-only file system") || Catch::Contains("ermission"));
  const std::string root = outcome.results.at("grep ' / ' /proc/self/mounts");
  CHECK_THAT(root, Catch::Contains("overlay") && Catch::Contains("ro,") && Catch::Contains("nosuid") &&
                       Catch::Contains("nodev"));
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

TEST_CASE("remapped root") {
  Scene scene;
  scene.spec.remap_root = Tristate::yes;
  scene.spec.writable = Tristate::yes;
  const Outcome outcome =
      scene.run({"id -u", "stat -c %u /bin/busybox", "mkdir /mnt && mount -t tmpfs none /mnt && echo mounted"});
  REQUIRE(outcome.error.empty());
  CHECK(outcome.results.at("id -u") == "0\n");
  CHECK(outcome.results.at("stat -c %u /bin/busybox") == "0\n");
  CHECK(outcome.results.at("mkdir /mnt && mount -t tmpfs none /mnt && echo mounted") == "mounted\n");
  CHECK(outcome.environment.get("HOME") == "/root");
  CHECK(outcome.environment.get("USER") == "root");
  CHECK(outcome.environment.get("LOGNAME") == "tester");
}

TEST_CASE("the configuration decides what the options leave open") {
  Scene scene;
  scene.host.set("ENROOT_REMAP_ROOT", "yes");
  scene.host.set("ENROOT_ROOTFS_WRITABLE", "yes");
  CHECK(scene.run({"id -u; touch /x && echo ok"}).results.at("id -u; touch /x && echo ok") == "0\nok\n");
  scene.spec.remap_root = Tristate::no;
  scene.spec.writable = Tristate::no;
  const Outcome outcome = scene.run({"id -u", "touch /x"});
  CHECK(outcome.results.at("id -u") == std::to_string(getuid()) + "\n");
  CHECK_THAT(outcome.results.at("touch /x"), Catch::Contains("Read-only"));
}

TEST_CASE("entries of passwd and group: root, nobody and the user first, _apt removed, home from /etc/skel") {
  Scene scene;
  put_file(scene.root + "/etc/skel/.profile", "export FROM_SKEL=yes\n");
  const Outcome outcome = scene.run({"cat /etc/passwd", "cut -d: -f1 /etc/group", "id -un", "stat -c %a ~"});
  REQUIRE(outcome.error.empty());
  const std::string id = std::to_string(getuid());
  const std::string& passwd = outcome.results.at("cat /etc/passwd");
  CHECK_THAT(passwd, Catch::StartsWith("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n"));
  CHECK_THAT(passwd, Catch::Contains(":x:" + id + ":"));
  CHECK_THAT(passwd, !Catch::Contains("_apt"));
  CHECK_THAT(outcome.results.at("cut -d: -f1 /etc/group"),
             Catch::StartsWith("root\nnogroup\n") && Catch::EndsWith("staff\n"));
  CHECK(outcome.results.at("stat -c %a ~") == "700\n");
  CHECK(outcome.environment.get("FROM_SKEL") == "yes");
}

TEST_CASE("the host's home directory") {
  Scene scene;
  put_file(scene.directory / "home/file", "mine\n");
  CHECK_THAT(scene.run({"cat " + scene.directory.path() + "/home/file"}).results.begin()->second,
             !Catch::Contains("mine"));
  scene.spec.mount_home = Tristate::yes;
  const Outcome outcome = scene.run({"cat ~/file && touch ~/new", "echo $HOME"});
  REQUIRE(outcome.error.empty());
  CHECK(outcome.results.at("cat ~/file && touch ~/new") == "mine\n");
  CHECK(outcome.results.at("echo $HOME") == scene.directory.path() + "/home\n");
  CHECK(fs::exists(scene.directory / "home/new"));
  scene.spec.remap_root = Tristate::yes;
  CHECK(scene.run({"cat /root/file; echo $HOME"}).results.at("cat /root/file; echo $HOME") == "mine\n/root\n");
}

TEST_CASE("mounts as options have them") {
  Scene scene;
  put_file(scene.directory / "x/f", "content\n");
  scene.host.set("WHERE", scene.directory / "x");
  scene.spec.mounts = mounts(
      scene.directory / "x:/data:ro,${WHERE}/f:/a/b/file,tmpfs:/scratch:size=1m,./x:/rel,$WHERE:/deep/er,umount:/tmp");
  const Outcome outcome = scene.run({"cat /data/f", "touch /data/g", "cat /a/b/file",
                                     "touch /scratch/s && grep ' /scratch ' /proc/self/mounts",
                                     "touch /rel/new && echo ok", "ls /deep/er", "touch /tmp/z"});
  REQUIRE(outcome.error.empty());
  CHECK(outcome.results.at("cat /data/f") == "content\n");
  CHECK_THAT(outcome.results.at("touch /data/g"), Catch::Contains("Read-only"));
  CHECK(outcome.results.at("cat /a/b/file") == "content\n");
  CHECK_THAT(outcome.results.at("touch /scratch/s && grep ' /scratch ' /proc/self/mounts"),
             Catch::Contains("size=1024k"));
  CHECK(outcome.results.at("touch /rel/new && echo ok") == "ok\n");
  CHECK_THAT(outcome.results.at("ls /deep/er"), Catch::Contains("f\n"));
  CHECK_THAT(outcome.results.at("touch /tmp/z"), Catch::Contains("Read-only"));
  CHECK(fs::exists(scene.directory / "x/new"));
  CHECK(outcome.log.empty());
}

TEST_CASE("a mount that cannot be made says which, why and what to do") {
  Scene scene;
  fs::create_directories(scene.directory / "x");
  const auto error_of = [&](const std::string& option) {
    scene.spec.mounts = mounts(option);
    return scene.run({"true"}).error;
  };
  CHECK_THAT(error_of("/does/not/exist:/x"), Catch::StartsWith("--container-mounts: ") &&
                                                 Catch::Contains("/does/not/exist") &&
                                                 Catch::Contains("No such file or directory [mount-source]\nhint: "));
  CHECK_THAT(error_of(scene.directory / "x:../home"),
             Catch::Contains("../home") && Catch::Contains("cross-device link"));
  CHECK_THAT(error_of(scene.directory / "x:/a/../../b"), Catch::Contains("leaves the container"));
  CHECK_THAT(error_of("$NOT_SET:/x"), Catch::Contains("$NOT_SET") && Catch::Contains("not a path [mount-syntax]"));
  CHECK_THAT(error_of(scene.directory / "x:/etc/passwd"),
             Catch::Contains("/etc/passwd") && Catch::Contains("directory"));
  CHECK(error_of("/does/not/exist:/x:nofail").empty());
  scene.spec.mounts = mounts("/does/not/exist:/x:nofail");
  CHECK_THAT(scene.run({}).log, Catch::Contains("/does/not/exist"));
  scene.spec.mounts = mounts("/does/not/exist:/x:nofail+silent");
  CHECK(scene.run({}).log.empty());
}

TEST_CASE("targets are resolved inside the image, whatever its links say") {
  Scene scene;
  put_file(scene.directory / "x/f", "content\n");
  fs::create_directories(scene.directory / "outside");
  fs::create_symlink(scene.directory / "outside", scene.root + "/link");
  fs::create_symlink("../../../../../../../../" + scene.directory.path() + "/outside", scene.root + "/up");
  scene.spec.mounts = mounts(scene.directory / "x:/link/a," + (scene.directory / "x:/up/b") + ",tmpfs:/link");
  const Outcome outcome = scene.run({"ls " + scene.directory.path() + "/outside"});
  REQUIRE(outcome.error.empty());
  CHECK(fs::is_empty(scene.directory / "outside"));
}

TEST_CASE("working directory: the image's, else the root; the option's is the task's to enter, but has to exist") {
  Scene scene;
  CHECK(scene.run({"pwd"}).results.at("pwd") == "/\n");
  fs::create_directories(scene.root + "/work space");
  put_file(scene.root + "/etc/rc", image_rc("/work space"));
  CHECK(scene.run({}).workdir == "/work space");
  fs::create_directories(scene.root + "/workspace");
  put_file(scene.root + "/etc/rc", image_rc("/workspace"));
  CHECK(scene.run({"pwd"}).results.at("pwd") == "/workspace\n");
  scene.spec.workdir = "/bin";
  CHECK(scene.run({}).workdir == "/workspace");
  scene.spec.workdir = "/not/there";
  CHECK_THAT(scene.run({}).error, Catch::Contains("/not/there") &&
                                      Catch::Contains("No such file or directory [workdir]") &&
                                      Catch::Contains("hint: --container-workdir is a directory inside the container"));
  scene.spec.workdir = scene.directory / "home/none";
  CHECK_THAT(scene.run({}).error, Catch::Contains("hint: --container-mount-home puts the home directory"));
  scene.spec.workdir.clear();
  fs::remove(scene.root + "/etc/rc");
  CHECK(scene.run({}).workdir == "/");
}

TEST_CASE("environment: image, site, user, --container-env; login shell; nothing of the host's") {
  Scene scene;
  scene.host.set("HOST_ONLY", "host");
  scene.host.set("KEPT", "from host \"quoted\"");
  scene.host.set("EMPTY", "");
  scene.host.set("TERM", "xterm-test");
  put_file(scene.root + "/etc/environment",
           "PATH=/bin:/image/bin\nIMAGE=1\nSITE=0\nUSER_FILE=0\nKEPT=image\nEMPTY=image\nENROOT_X=1\n# c\nill formed\n"
           "QUOTED=\"a b\"\nEXPANDED=<${HOST_ONLY}>$HOST_ONLY\nWITH_EQUALS=a=b\n");
  put_file(scene.directory / "config/environ.d/10-user.env", "USER_FILE=user\n");
  scene.spec.keep_env = {"KEPT", "EMPTY", "ABSENT"};
  put_file(scene.root + "/etc/profile", "export PROFILE=read\n");
  Outcome outcome = scene.run({});
  REQUIRE(outcome.error.empty());
  const Environment& environment = outcome.environment;
  CHECK(environment.get("PATH") == "/bin:/image/bin");
  CHECK(environment.get("IMAGE") == "1");
  CHECK(environment.get("USER_FILE") == "user");
  CHECK(environment.get("KEPT") == "from host \"quoted\"");
  CHECK(environment.get("EMPTY") == "image");
  CHECK(environment.get("QUOTED") == "a b");
  CHECK(environment.get("EXPANDED") == "<host>$HOST_ONLY");
  CHECK(environment.get("WITH_EQUALS") == "a=b");
  CHECK(environment.get("PROFILE") == "read");
  CHECK(environment.get("TERM") == "xterm-test");
  for (const char* name : {"ENROOT_X", "HOST_ONLY", "ABSENT", "_", "OLDPWD", "ENROOT_DATA_PATH"}) {
    INFO(name);
    CHECK_FALSE(environment.has(name));
  }
  scene.host.set("ENROOT_LOGIN_SHELL", "no");
  outcome = scene.run({});
  CHECK_FALSE(outcome.environment.has("PROFILE"));
  CHECK_FALSE(outcome.environment.has("LOGNAME"));
}

TEST_CASE("the site's files replace the built-in ones") {
  Scene scene;
  put_file(scene.sysconf + "/mounts.d/10-own.fstab",
           "/proc /proc rbind,x-create=dir -1\n/dev/null /dev/null bind,x-create=file -1\ntmpfs /own tmpfs "
           "x-create=dir 0 -1\n");
  put_file(scene.sysconf + "/environ.d/10-own.env", "FROM_SITE=${USER}\n");
  put_file(scene.directory / "config/mounts.d/20.fstab", "${HOME} /user-home none x-create=dir,bind,ro\n");
  const Outcome outcome = scene.run({"cut -d' ' -f2 /proc/self/mounts"});
  INFO(outcome.error);
  REQUIRE(outcome.error.empty());
  const std::string& mounted = outcome.results.at("cut -d' ' -f2 /proc/self/mounts");
  CHECK_THAT(mounted, Catch::Contains("\n/own\n") && Catch::Contains("\n/user-home\n") && !Catch::Contains("\n/tmp\n"));
  CHECK(outcome.environment.get("FROM_SITE") == "tester");
}

TEST_CASE("mounts that a site adds in a directory of its own, without the standard ones") {
  Scene scene;
  put_file(scene.sysconf + "/mounts.d/50-own.fstab", "# not /proc\ntmpfs /own tmpfs x-create=dir\n");
  const Outcome outcome = scene.run({"cut -d' ' -f2 /proc/self/mounts"});
  INFO(outcome.error);
  REQUIRE(outcome.error.empty());
  const std::string& mounted = outcome.results.at("cut -d' ' -f2 /proc/self/mounts");
  CHECK_THAT(mounted, Catch::Contains("\n/own\n") && Catch::Contains("\n/proc\n") && Catch::Contains("\n/tmp\n"));
}

TEST_CASE("volumes of the image") {
  Scene scene;
  put_file(scene.root + "/etc/fstab", "${ENROOT_ROOTFS}/data /data none x-create=dir,bind,rw,nosuid,nodev\n");
  const Outcome outcome = scene.run({"touch /data/x && echo ok", "grep -c ' /data ' /proc/self/mounts"});
  REQUIRE(outcome.error.empty());
  CHECK(outcome.results.at("touch /data/x && echo ok") == "ok\n");
  CHECK(outcome.results.at("grep -c ' /data ' /proc/self/mounts") == "1\n");
}

TEST_CASE("rc runs, the entrypoint does not; what rc sees is closed and restricted") {
  Scene scene;
  put_file(scene.root + "/etc/profile",
           "ls /proc/self/fd/ > /tmp/fds; grep -E 'NoNewPrivs|CapBnd|CapEff' /proc/self/status > /tmp/status\n"
           "cat > /tmp/stdin\necho noise\nsleep 50 &\n");
  const Outcome outcome = scene.run({"ls /tmp/entrypoint", "cat /tmp/fds", "cat /tmp/status", "cat /tmp/stdin"});
  REQUIRE(outcome.error.empty());
  CHECK_THAT(outcome.results.at("ls /tmp/entrypoint"), Catch::Contains("No such file"));
  // 93 to 96 are ours, 10 is the shell's script, and ls itself has 3 open.
  CHECK_THAT(outcome.results.at("cat /tmp/fds"), Catch::Matches("(([0-3]|10|9[3-6])\n)+"));
  CHECK_THAT(outcome.results.at("cat /tmp/status"), Catch::Contains("NoNewPrivs:\t1") &&
                                                        Catch::Contains("CapBnd:\t0000000000000000") &&
                                                        Catch::Contains("CapEff:\t0000000000000000"));
  CHECK(outcome.results.at("cat /tmp/stdin").empty());
  CHECK(outcome.log.empty());
  CHECK(outcome.milliseconds < 40000);  // what it leaves in the background is not waited for
}

TEST_CASE("scripts of the image have the low descriptors for themselves") {
  Scene scene;
  put_file(scene.root + "/etc/profile", "exec 3>&1 4>&2 5>&- 6</dev/null 9>&1\necho said >&3\nexport BY_PROFILE=yes\n");
  const Outcome outcome = scene.run({});
  REQUIRE(outcome.error.empty());
  CHECK(outcome.environment.get("BY_PROFILE") == "yes");
}

TEST_CASE("scripts of the image that fail, end early or hang") {
  Scene scene;
  put_file(scene.root + "/etc/profile", "echo something is wrong >&2\nexit 3\n");
  CHECK_THAT(scene.run({}).error,
             Catch::Contains("return code 3") && Catch::Contains("something is wrong [start-script]"));
  put_file(scene.root + "/etc/profile", "exit 0\n");
  CHECK_THAT(scene.run({}).error, Catch::Contains("ended too soon") && Catch::Contains("--no-container-entrypoint"));
  put_file(scene.root + "/etc/profile", "sleep 100\n");
  scene.rc_time = std::chrono::milliseconds(200);
  CHECK_THAT(scene.run({}).error, Catch::Contains("still running"));
}

TEST_CASE("an image without a shell starts, too") {
  Scene scene;
  fs::remove_all(scene.root + "/bin");
  put_file(scene.root + "/etc/rc", image_rc("/it's \"here\""));
  fs::create_directories(scene.root + "/it's ");
  fs::create_directories(scene.root + "/app");
  put_file(scene.root + "/etc/rc", "mkdir -p '/app'\ncd '/app' && unset OLDPWD || exit 1\n");
  const Outcome outcome = scene.run({}, [] { return access("/etc/rc", R_OK) == 0 ? "inside" : "?"; });
  REQUIRE(outcome.error.empty());
  CHECK(outcome.results.at("inside") == "inside");
  CHECK(outcome.workdir == "/app");
  CHECK(outcome.environment.get("FROM_IMAGE") == "yes");
  CHECK(outcome.environment.get("LOGNAME") == "tester");
}

TEST_CASE("an image of nothing but a program") {
  Scene scene;
  fs::remove_all(scene.root);
  fs::create_directories(scene.root);
  put_file(scene.root + "/program", "x", 0755);
  const Outcome outcome =
      scene.run({}, [] { return access("/program", X_OK) == 0 && access("/proc/self", F_OK) == 0 ? "ok" : "?"; });
  REQUIRE(outcome.error.empty());
  CHECK(outcome.results.at("inside") == "ok");
  CHECK(outcome.workdir == "/");
}

TEST_CASE("a container made by create keeps what is written to it, and only when writable") {
  Scene scene;
  scene.kind = RootSource::Kind::directory;
  CHECK_THAT(scene.run({"touch /new"}).results.at("touch /new"), Catch::Contains("Read-only"));
  CHECK_FALSE(fs::exists(scene.root + "/new"));
  scene.spec.writable = Tristate::yes;
  CHECK(scene.run({"touch /new && echo ok"}).results.at("touch /new && echo ok") == "ok\n");
  CHECK(fs::exists(scene.root + "/new"));
}

TEST_CASE("a kernel without the new mount calls") {
  Scene scene;
  scene.api = MountApi::classic;
  put_file(scene.directory / "x/f", "content\n");
  scene.spec.mounts = mounts(scene.directory / "x:/data:ro+rprivate,tmpfs:/scratch,umount:/tmp");
  const Outcome outcome =
      scene.run({"cat /data/f", "touch /data/g", "touch /x", "touch /sys/x", "touch /scratch/x && echo ok"});
  INFO(outcome.error);
  REQUIRE(outcome.error.empty());
  CHECK(outcome.results.at("cat /data/f") == "content\n");
  for (const char* command : {"touch /data/g", "touch /x"})
    CHECK_THAT(outcome.results.at(command), Catch::Contains("Read-only"));
  CHECK(outcome.results.at("touch /scratch/x && echo ok") == "ok\n");
}

TEST_CASE("propagation and remounts as options have them") {
  Scene scene;
  fs::create_directories(scene.directory / "x");
  scene.spec.mounts = mounts(scene.directory / "x:/u:unbindable+ro," + (scene.directory / "x:/s:rshared"));
  put_file(scene.directory / "config/mounts.d/10.fstab", "tmpfs /t tmpfs x-create=dir\nnone /t none remount,bind,ro\n");
  const Outcome outcome =
      scene.run({"grep ' /u ' /proc/self/mountinfo", "grep ' /s ' /proc/self/mountinfo", "touch /t/x"});
  INFO(outcome.error);
  REQUIRE(outcome.error.empty());
  CHECK_THAT(outcome.results.at("grep ' /u ' /proc/self/mountinfo"), Catch::Contains("unbindable"));
  CHECK_THAT(outcome.results.at("grep ' /s ' /proc/self/mountinfo"), Catch::Contains("shared:"));
  CHECK_THAT(outcome.results.at("touch /t/x"), Catch::Contains("Read-only"));
}

/// Not a test: `run_prepare_test "[bench]"` prints what preparing costs here. SITULA_BENCH_ROOT: a root file system to
/// use.
TEST_CASE("time of preparation", "[.][bench]") {
  Scene scene;
  if (const char* root = std::getenv("SITULA_BENCH_ROOT")) scene.root = root;
  for (const bool shell : {true, false}) {
    if (!shell) fs::remove_all(scene.root + "/bin");
    std::vector<double> times;
    for (int i = 0; i < 15; ++i) times.push_back(scene.run({}, [] { return ""; }).milliseconds);
    std::sort(times.begin(), times.end());
    std::cout << (shell ? "with login shell: " : "without a shell: ") << times[times.size() / 2] << " ms (best "
              << times[0] << ")\n";
    if (std::getenv("SITULA_BENCH_ROOT") != nullptr) break;
  }
}
