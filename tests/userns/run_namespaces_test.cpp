// Does a container with namespaces of its own behave like one without, apart from what it does not see? COMPAT.md 1
// (--container-unshare), 3 and 4.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include <poll.h>
#include <pty.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "tests/support/kernel.hpp"
#include "tests/support/skip.hpp"
#include "tests/userns/start_scene.hpp"

namespace fs = std::filesystem;
using namespace situla;
using namespace situla::test;

namespace {

/// Waits until the container's output has the text.
bool wait_for(const StartScene& scene, const std::string& text) {
  for (int i = 0; i < 1000; ++i) {
    if (get_file(scene.directory / "output").find(text) != std::string::npos) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

/// The container as the job of a shell on a terminal; the test is who sits before it.
class Terminal {
 public:
  explicit Terminal(StartScene& scene) {
    pid_ = forkpty(&controller_, nullptr, nullptr, nullptr);
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) be_shell(scene);
  }
  ~Terminal() {
    close(controller_);
    (void)waitpid(pid_, nullptr, 0);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void type(const std::string& keys) const { REQUIRE(write_all(controller_, keys)); }
  /// Reads until the text has come, at most ten seconds.
  bool shows(const std::string& text) {
    while (seen_.find(text) == std::string::npos) {
      pollfd entry{controller_, POLLIN, 0};
      char buffer[256];
      if (poll(&entry, 1, 10000) <= 0) return false;
      const ssize_t size = read(controller_, buffer, sizeof buffer);
      if (size <= 0) return false;
      seen_.append(buffer, static_cast<size_t>(size));
    }
    return true;
  }
  [[nodiscard]] const std::string& seen() const { return seen_; }

 private:
  [[noreturn]] static void be_shell(StartScene& scene) {
    (void)std::signal(SIGTTOU, SIG_IGN);
    const pid_t job = fork();
    if (job == 0) {
      (void)setpgid(0, 0);
      (void)tcsetpgrp(0, getpid());
      (void)std::signal(SIGTTOU, SIG_DFL);
      scene.become();
    }
    (void)setpgid(job, job);
    int status = 0;
    while (waitpid(job, &status, WUNTRACED) == job && WIFSTOPPED(status)) {
      (void)tcsetpgrp(0, getpgrp());
      (void)write_all(1, "[stopped]");
      (void)tcsetpgrp(0, job);
      (void)kill(-job, SIGCONT);
      (void)write_all(1, "[continued]");
    }
    (void)write_all(1, WIFEXITED(status) ? "[ended " + std::to_string(WEXITSTATUS(status)) + "]" : "[killed]");
    _exit(0);
  }

  pid_t pid_ = -1;
  int controller_ = -1;
  std::string seen_;
};

}  // namespace

TEST_CASE("pid: process 2 of its own namespace, its exit code and signals, nothing left") {
  StartScene scene;
  scene.request.spec.unshare.pid = true;
  CHECK(
      scene.start({"sh", "-c", "echo $$; cat /proc/1/comm; [ -e /proc/" + std::to_string(getpid()) + " ] || echo own"})
          .output == "2\nsitula-init\nown\n");
  CHECK(scene.start({"sh", "-c", "exit 7"}).code == 7);
  CHECK(scene.start({"cat"}, "through standard input").output == "through standard input");
  CHECK(scene.start({"sh", "-c", "kill -TERM $$"}).signal == SIGTERM);
  CHECK(scene.start({"sh", "-c", "kill -KILL $$"}).signal == SIGKILL);
  const Ended missing = scene.start({"/no/such/program"});
  CHECK(missing.code != 0);
  CHECK_THAT(missing.output, Catch::Contains("/no/such/program"));
  // Orphans are reaped while it runs, and do not keep it alive.
  CHECK(scene
            .start(
                {"sh", "-c", "(sleep 0 &); (sleep 1000 &); sleep 0.2; grep -l '^State:.Z' /proc/[0-9]*/status; exit 3"})
            .code == 3);
  CHECK(fs::is_empty(scene.directory / "runtime"));
  scene.host.set("ENROOT_UNSHARE_PID", "yes");
  scene.request.spec.unshare.pid = false;
  CHECK(scene.start({"sh", "-c", "echo $$"}).output == "2\n");
}

TEST_CASE("pid: what was mounted beneath /proc is there in the new one") {
  StartScene scene;
  if (!modern_mount_api()) SITULA_SKIP("this kernel has no open_tree(2)");
  put_file(scene.directory / "two", "two processors\n");
  put_file(scene.directory / "other/params", "ModifyDeviceFiles: 0\n");
  scene.request.start.mounts = {scene.directory / "two:/proc/cpuinfo:none:bind",
                                scene.directory / "other:/proc/sysvipc:none:bind",
                                scene.directory / "two:/proc/sysvipc/params:none:bind"};
  scene.request.spec.unshare.pid = true;
  CHECK(scene.start({"sh", "-c", "echo $$; cat /proc/cpuinfo /proc/sysvipc/params"}).output ==
        "2\ntwo processors\ntwo processors\n");
}

TEST_CASE("pid: a signal that is sent to the command line reaches the command") {
  if (!kernel_has(kernel::kPidfdOpen)) SITULA_SKIP("without pidfd_open (Linux 5.3) the command has no name outside");
  StartScene scene;
  scene.request.spec.unshare.pid = true;
  const std::vector<std::string> command = {"sh", "-c",
                                            "trap 'echo usr1' USR1; trap 'echo term; exit 5' TERM; echo ready; "
                                            "while :; do sleep 0.05; done"};
  const pid_t pid = scene.begin(command);
  REQUIRE(wait_for(scene, "ready"));
  REQUIRE(kill(pid, SIGUSR1) == 0);
  CHECK(wait_for(scene, "usr1"));
  REQUIRE(kill(pid, SIGTERM) == 0);
  const Ended ended = StartScene::end(pid, scene.directory / "output");
  CHECK(ended.output == "ready\nusr1\nterm\n");
  CHECK(ended.code == 5);
}

TEST_CASE("pid: killed without warning, the whole namespace ends") {
  StartScene scene;
  scene.request.spec.unshare.pid = true;
  scene.request.start.mounts = {scene.directory.path() + ":/shared"};
  // The pipe ends when none of its processes is left.
  const std::string beat = scene.directory / "beat";
  REQUIRE(mkfifo(beat.c_str(), 0600) == 0);
  const UniqueFd heard(open(beat.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  const pid_t pid = scene.begin({"sh", "-c", "exec 3> /shared/beat; (while echo x >&3; do sleep 0.02; done) & wait"});
  pollfd entry{heard.get(), POLLIN, 0};
  REQUIRE(poll(&entry, 1, 10000) == 1);
  REQUIRE(kill(pid, SIGKILL) == 0);
  CHECK(StartScene::end(pid, scene.directory / "output").signal == SIGKILL);
  char buffer[256];
  ssize_t size = 1;
  for (int i = 0; i < 1000 && size > 0 && poll(&entry, 1, 10000) == 1; ++i)
    size = read(heard.get(), buffer, sizeof buffer);
  CHECK(size == 0);
}

TEST_CASE("Ctrl-Z, fg and Ctrl-C on a terminal, with and without a PID namespace") {
  for (const bool own_pid : {false, true}) {
    INFO(own_pid);
    StartScene scene;
    scene.request.spec.unshare.pid = own_pid;
    scene.request.command = {
        "sh", "-c", "trap 'echo interrupted; exit 3' INT; [ -t 0 ] && echo ready; while :; do sleep 0.05; done"};
    Terminal terminal(scene);
    CHECK(terminal.shows("ready"));
    terminal.type("\x1a");
    CHECK(terminal.shows("[stopped]"));
    // Until the job has the terminal again the keys are the shell's.
    CHECK(terminal.shows("[continued]"));
    terminal.type("\x03");
    CHECK(terminal.shows("interrupted"));
    CHECK(terminal.shows("[ended 3]"));
    INFO(terminal.seen());
  }
}

TEST_CASE("net: nothing but the loopback interface, which is up, also in /sys") {
  StartScene scene;
  scene.request.spec.unshare.net = true;
  const Ended ended = scene.start(
      {"sh", "-c", "cat /proc/net/dev | grep -c :; cat /sys/class/net/lo/flags; ls /sys/class/net; touch /sys/x"});
  INFO(ended.output);
  CHECK_THAT(ended.output, Catch::StartsWith("1\n0x9\nlo\n"));
  CHECK_THAT(ended.output, Catch::Contains("/sys/x"));
}

TEST_CASE("ipc: /dev, /dev/shm and /dev/mqueue of its own") {
  StartScene scene;
  const std::string name = "/dev/shm/situla-test-" + std::to_string(getpid());
  put_file(name, "the host's");
  CHECK(scene.start({"cat", name}).output == "the host's");
  scene.request.spec.unshare.ipc = true;
  const Ended ended =
      scene.start({"sh", "-c",
                   "ls /dev/shm; ls /dev; touch /dev/shm/x && echo ok; grep -E ' /dev/(shm|mqueue|pts) ' "
                   "/proc/self/mounts | cut -d' ' -f2,3; echo text > /dev/null; readlink /dev/stdin"});
  fs::remove(name);
  INFO(ended.output);
  CHECK_THAT(ended.output, !Catch::Contains("situla-test"));
  CHECK_THAT(ended.output, Catch::Contains("ok\n") && Catch::Contains("/dev/shm tmpfs\n") &&
                               Catch::Contains("/dev/mqueue mqueue\n") && Catch::Contains("/dev/pts devpts\n") &&
                               Catch::Contains("/proc/self/fd/0\n"));
  CHECK_THAT(ended.output, !Catch::Contains("loop") && !Catch::Contains("fuse"));
}

TEST_CASE("ENROOT_RESTRICT_DEV: the usual devices only, shared memory of the host") {
  StartScene scene;
  const std::string name = "/dev/shm/situla-test-" + std::to_string(getpid());
  put_file(name, "the host's");
  scene.host.set("ENROOT_RESTRICT_DEV", "y");
  const Ended ended =
      scene.start({"sh", "-c", "cat " + name + "; ls /dev; head -c 3 /dev/zero | cat > /dev/null || echo bad"});
  fs::remove(name);
  CHECK_THAT(ended.output, Catch::StartsWith("the host's") && Catch::Contains("urandom") && !Catch::Contains("loop") &&
                               !Catch::Contains("fuse"));
}

TEST_CASE("uts: a host name of its own") {
  StartScene scene;
  scene.request.spec.unshare.uts = true;
  scene.request.spec.remap_root = Tristate::yes;
  utsname before{}, after{};
  REQUIRE(uname(&before) == 0);
  CHECK(scene.start({"sh", "-c", "busybox hostname other && busybox hostname"}).output == "other\n");
  REQUIRE(uname(&after) == 0);
  CHECK(std::string(before.nodename) == after.nodename);
}

TEST_CASE("all namespaces at once, on an image of each kind, as root inside") {
  StartScene scene;
  scene.request.spec.unshare = {true, true, true, true};
  scene.request.spec.remap_root = Tristate::yes;
  CHECK(scene.start({"sh", "-c", "id -u; echo $$; exit 4"}).output == "0\n2\n");
  const std::string image = scene.directory / "image.sqsh";
  REQUIRE(std::system(
              ("mksquashfs " + scene.root + " " + image + " -all-root -quiet -no-progress > /dev/null").c_str()) == 0);
  scene.root = image;
  scene.request.root.kind = RootSource::Kind::image;
  for (const MountKind mount : {MountKind::automatic, MountKind::extract}) {
    scene.request.root.mount = mount;
    const Ended ended = scene.start({"sh", "-c", "cat /etc/group | grep -c .; exit 4"});
    CHECK(ended.code == 4);
  }
  for (int i = 0; i < 6000 && !fs::is_empty(scene.directory / "temp"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(fs::is_empty(scene.directory / "temp"));
}
