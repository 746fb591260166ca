// Does a command get inside a container that runs, and does `list --fancy` find it? COMPAT.md 3.
#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <thread>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "common/sys/mount/namespaces.hpp"
#include "common/sys/process/stand_in.hpp"
#include "hooks/containers/running_processes.hpp"
#include "hooks/run/attach.hpp"
#include "hooks/run/launch.hpp"
#include "tests/userns/run_support.hpp"

namespace fs = std::filesystem;
using namespace situla;
using namespace situla::test;

namespace {

struct Ended {
  std::string output;
  int code = -1;
  int signal = 0;
};

/// Runs something in a child whose output is kept.
Ended in_child(const std::string& output, const std::function<int()>& body) {
  put_file(output, "");
  const pid_t pid = fork();
  if (pid == 0) {
    (void)dup2(open(output.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC), 1);
    (void)dup2(1, 2);
    _exit(body());
  }
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  return {get_file(output), WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status) ? WTERMSIG(status) : 0};
}

template <typename Condition>
bool eventually(const Condition& condition) {
  for (int i = 0; i < 1000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return condition();
}

/// The program sleep at work. While one is still being loaded its name is there already, its environment is not.
bool sleeps(pid_t pid) {
  return get_file("/proc/" + std::to_string(pid) + "/stat").find("(sleep) S ") != std::string::npos;
}

/// A container that runs for as long as the object lives.
class Running {
 public:
  Running(Scene& scene, ContainerRequest request, const std::string& script = "cd /etc; ROLE=main exec sleep 1000") {
    request.command = {"sh", "-c", script};
    pid_ = fork();
    if (pid_ == 0) {
      (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
      NullLog log;
      auto completed = complete(std::move(request), scene.host, log);
      const auto failed = completed ? start_container(std::move(*completed), log) : fail(completed.error());
      if (!failed) (void)write_all(2, failed.error().text() + "\n");
      _exit(1);
    }
    REQUIRE(eventually([this] { return sleeps(pid_); }));
  }
  ~Running() { end(); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  void end() {
    if (pid_ <= 0) return;
    (void)kill(pid_, SIGKILL);
    (void)waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
};

struct AttachScene : Scene {
  AttachScene() {
    host.set("ENROOT_RUNTIME_PATH", directory / "runtime");
    host.set("ENROOT_TEMP_PATH", directory / "temp");
    fs::create_directories(directory / "temp");
    fs::create_directories(data);
    // Where `create` puts it.
    fs::rename(root, data + "/mine");
    root = data + "/mine";
    put_file(root + "/etc/rc", "exec \"$@\"\n");
  }

  [[nodiscard]] ContainerRequest request() const {
    ContainerRequest result;
    NamedContainer container{"mine", root};
    container.directory = std::make_shared<const UniqueFd>(std::move(*open_file(root, O_PATH | O_DIRECTORY)));
    result.root = RootSource::of(container);
    return result;
  }

  Ended exec(pid_t pid, const std::vector<std::string>& command, const std::vector<std::string>& environment = {}) {
    return in_child(directory / "output", [&] {
      ExecRequest request;
      request.pid = pid;
      request.command = command;
      request.environment = environment;
      request.host.set("TAKEN", "taken");
      const auto result = exec_in_container(request);
      if (result) return *result;
      (void)write_all(2, result.error().text() + "\n");
      return 1;
    });
  }
};

std::vector<RunningProcess> listed(const std::vector<std::string>& containers, pid_t pid) {
  std::vector<KnownContainer> known;
  for (const std::string& path : containers)
    if (auto one = KnownContainer::of(NamedContainer{"", path})) known.push_back(std::move(*one));
  auto processes = running_processes(known);
  REQUIRE(processes);
  std::erase_if(*processes, [pid](const RunningProcess& process) { return process.pid != pid; });
  return *processes;
}

}  // namespace

TEST_CASE("of a process that has ended there is no environment, and of one that was given none an empty one") {
  AttachScene scene;
  Running container(scene, scene.request());
  const auto target = AttachTarget::open(container.pid());
  REQUIRE(target);
  const auto environment = target->environment();
  REQUIRE(environment);
  CHECK(environment->get("ROLE") == "main");
  // Ended, but nobody has waited for it.
  REQUIRE(kill(container.pid(), SIGKILL) == 0);
  REQUIRE(eventually([&] {
    return get_file("/proc/" + std::to_string(container.pid()) + "/stat").find(") Z ") != std::string::npos;
  }));
  const auto ended = target->environment();
  REQUIRE_FALSE(ended);
  CHECK(ended.error().kind() == ErrorKind::not_found);
  container.end();
  CHECK(target->environment().error().kind() == ErrorKind::not_found);

  Running bare(scene, scene.request(), "exec env -i sleep 1000");
  const auto other = AttachTarget::open(bare.pid());
  REQUIRE(other);
  const auto nothing = other->environment();
  REQUIRE(nothing);
  CHECK(nothing->entries().empty());
}

TEST_CASE("exec: root, directory, environment, user, exit code") {
  AttachScene scene;
  const Running running(scene, scene.request());
  CHECK(scene.exec(running.pid(), {"sh", "-c", "pwd; id -u; echo $ROLE $FROM_IMAGE"}).output ==
        "/etc\n" + std::to_string(getuid()) + "\nmain yes\n");
  CHECK(scene.exec(running.pid(), {"ls", "-d", "/proc/self/root/etc/rc"}).code == 0);
  CHECK(scene.exec(running.pid(), {"sh", "-c", "echo $ROLE $TAKEN $EMPTY."}, {"ROLE=other", "TAKEN", "EMPTY"}).output ==
        "other taken .\n");
  CHECK(scene.exec(running.pid(), {"sh", "-c", "exit 7"}).code == 7);
  CHECK(scene.exec(running.pid(), {"sh", "-c", "kill -TERM $$"}).signal == SIGTERM);
  const Ended missing = scene.exec(running.pid(), {"no-such-program"});
  CHECK(missing.code == 1);
  CHECK(missing.output == "execute no-such-program: No such file or directory [command]\n");
  const Ended invalid = scene.exec(running.pid(), {"true"}, {"1=x"});
  CHECK(invalid.code == 1);
  CHECK(invalid.output == "Invalid argument: 1=x [option]\n");
}

TEST_CASE("exec: every namespace of the container, no privilege and no descriptor of ours") {
  AttachScene scene;
  const Running running(scene, scene.request());
  const int extra = open("/dev/null", O_RDONLY);  // not close-on-exec
  REQUIRE(extra >= 0);
  const std::string script =
      "for n in user mnt cgroup net; do [ /proc/self/ns/$n -ef /proc/$1/ns/$n ] || echo $n differs; done;"
      "ls /proc/self/fd | sort -n; grep -E 'NoNewPrivs|CapBnd|CapPrm|Seccomp:' /proc/self/status";
  CHECK(scene.exec(running.pid(), {"sh", "-c", script, "x", std::to_string(running.pid())}).output ==
        "0\n1\n2\n3\nCapPrm:\t0000000000000000\nCapBnd:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n");
  close(extra);
}

TEST_CASE("exec: as root inside when the container's user is") {
  AttachScene scene;
  ContainerRequest request = scene.request();
  request.spec.remap_root = Tristate::yes;
  const Running running(scene, std::move(request));
  CHECK(scene.exec(running.pid(), {"sh", "-c", "id -u; mount -t tmpfs none /tmp && echo mounted"}).output ==
        "0\nmounted\n");
}

TEST_CASE("exec: what is no process, or in no container") {
  AttachScene scene;
  const std::string own = std::to_string(getpid());
  CHECK(scene.exec(getpid(), {"true"}).output ==
        "process " + own +
            " is not in a container [container-not-found]\nhint: list --fancy shows the containers' processes\n");
  Running running(scene, scene.request());
  const pid_t gone = running.pid();
  running.end();
  CHECK(scene.exec(gone, {"true"}).output == "Process not found: " + std::to_string(gone) + " [container-not-found]\n");
  // Ended, but nobody waited for it yet.
  const pid_t zombie = fork();
  if (zombie == 0) _exit(0);
  siginfo_t info{};
  REQUIRE(waitid(P_PID, static_cast<id_t>(zombie), &info, WEXITED | WNOWAIT) == 0);
  CHECK(scene.exec(zombie, {"true"}).output ==
        "Process not found: " + std::to_string(zombie) + " [container-not-found]\n");
  (void)waitpid(zombie, nullptr, 0);
}

TEST_CASE("exec: a process of ours that stands in for one of the container's is not meant itself") {
  AttachScene scene;
  const Running running(scene, scene.request());
  const pid_t stand_in = fork();
  if (stand_in == 0) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto target = AttachTarget::open(running.pid());
    if (!target || !target->join()) _exit(1);
    const auto ended = stand_in_for_child(StandInFor::shell);
    if (ended && *ended) _exit(**ended);
    execle("/bin/sleep", "sleep", "1000", nullptr,
           std::array<const char*, 3>{"ROLE=child", "PATH=/bin", nullptr}.data());
    _exit(1);
  }
  const std::string children = "/proc/" + std::to_string(stand_in) + "/task/" + std::to_string(stand_in) + "/children";
  CHECK(eventually([&] {
    const std::string child = get_file(children);
    return !child.empty() && sleeps(std::stoi(child));
  }));
  CHECK(scene.exec(stand_in, {"sh", "-c", "echo $ROLE"}).output == "child\n");
  // It is not older than the container's own process, but would be, were that one gone.
  CHECK(listed({scene.root}, running.pid()).size() == 1);
  (void)kill(stand_in, SIGKILL);
  (void)waitpid(stand_in, nullptr, 0);
}

TEST_CASE("exec: the container ends between look-up and join") {
  AttachScene scene;
  Running running(scene, scene.request());
  const pid_t pid = running.pid();
  const auto target = AttachTarget::open(pid);
  REQUIRE(target);
  running.end();
  CHECK(in_child(scene.directory / "output", [&] {
          const auto joined = target->join();
          (void)write_all(1, joined ? "joined" : joined.error().text());
          return 0;
        }).output == "Process not found: " + std::to_string(pid) + " [container-not-found]");
}

TEST_CASE("list: a process that serves a container, though older, does not represent it") {
  AttachScene scene;
  ContainerRequest request = scene.request();
  Running running(scene, std::move(request));
  const auto enter_and = [&](const std::function<void()>& then) {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto target = AttachTarget::open(running.pid());
    if (target && target->join()) then();
    _exit(1);
  };
  const pid_t server = enter_and([] { pause(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // ages are counted in hundredths of a second
  const pid_t command = enter_and([] { execle("/bin/sleep", "sleep", "1000", nullptr, environ); });
  CHECK(eventually([&] { return sleeps(command); }));
  running.end();
  CHECK(listed({scene.root}, server).empty());
  CHECK(listed({scene.root}, command).size() == 1);
  for (const pid_t pid : {server, command}) {
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, nullptr, 0);
  }
}

TEST_CASE("a stand-in is what its child is: exit code, signals, stop and continue") {
  AttachScene scene;
  const auto stand_in = [&](const std::function<void()>& child) {
    return in_child(scene.directory / "output", [&] {
      const auto ended = stand_in_for_child(StandInFor::shell);
      if (!ended) return 99;
      if (*ended) return **ended;
      child();
      _exit(98);
    });
  };
  CHECK(stand_in([] { _exit(7); }).code == 7);
  CHECK(stand_in([] { (void)raise(SIGKILL); }).signal == SIGKILL);
  // What reaches the stand-in by its number reaches the child.
  CHECK(stand_in([] {
          (void)std::signal(SIGUSR1, [](int) { _exit(5); });
          (void)kill(getppid(), SIGUSR1);
          sleep(10);
        }).code == 5);
  const pid_t pid = fork();
  if (pid == 0) {
    const auto ended = stand_in_for_child(StandInFor::shell);
    if (ended && *ended) _exit(**ended);
    (void)raise(SIGSTOP);
    _exit(6);
  }
  int status = 0;
  REQUIRE(waitpid(pid, &status, WUNTRACED) == pid);
  CHECK(WIFSTOPPED(status));
  (void)kill(pid, SIGCONT);
  REQUIRE(waitpid(pid, &status, 0) == pid);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 6);
}

TEST_CASE("list: the first process of a container, by its name, however its root is made") {
  AttachScene scene;
  for (const Tristate writable : {Tristate::no, Tristate::yes}) {
    ContainerRequest request = scene.request();
    request.spec.writable = writable;
    const Running running(scene, std::move(request));
    const auto processes = listed({scene.data + "/other", scene.root}, running.pid());
    REQUIRE(processes.size() == 1);
    CHECK(processes[0].container == scene.root);
    CHECK(processes[0].comm == "sleep");
    CHECK(processes[0].command == "sleep 1000");
    CHECK(processes[0].state.starts_with("S"));
    CHECK(processes[0].elapsed.count() < 60);
    // Under another name it is one of those that have none.
    REQUIRE(listed({}, running.pid()).size() == 1);
    CHECK_FALSE(listed({}, running.pid())[0].container);
    CHECK_FALSE(processes[0].step);
  }
}

TEST_CASE("list: a container that comes to the same path is another one, and so is a copy") {
  AttachScene scene;
  ContainerRequest request = scene.request();
  request.spec.writable = Tristate::no;
  const Running running(scene, std::move(request));
  REQUIRE(listed({scene.root}, running.pid())[0].container == scene.root);
  fs::copy(scene.root, scene.data + "/copy", fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  CHECK_FALSE(listed({scene.data + "/copy"}, running.pid())[0].container);
  fs::rename(scene.root, scene.data + "/moved");
  CHECK(listed({scene.data + "/moved"}, running.pid())[0].container == scene.data + "/moved");
  fs::rename(scene.data + "/copy", scene.root);
  CHECK_FALSE(listed({scene.root}, running.pid())[0].container);
  // The same directory, made anew: even if it got the same number.
  REQUIRE(fs::remove(scene.data + "/moved/.situla-id"));
  CHECK_FALSE(listed({scene.data + "/moved"}, running.pid())[0].container);
}

TEST_CASE("list: a container of an image, and processes that are in none") {
  AttachScene scene;
  const std::string image = scene.directory / "image.sqsh";
  REQUIRE(std::system(
              ("mksquashfs " + scene.root + " " + image + " -all-root -quiet -no-progress > /dev/null").c_str()) == 0);
  for (const MountKind mount : {MountKind::automatic, MountKind::extract}) {
    ContainerRequest request;
    request.root.kind = RootSource::Kind::image;
    request.root.path = image;
    request.root.image = std::move(*open_file(image, O_RDONLY));
    request.root.mount = mount;
    const Running running(scene, std::move(request));
    const auto processes = listed({scene.root}, running.pid());
    REQUIRE(processes.size() == 1);
    CHECK_FALSE(processes[0].container);
  }
  CHECK(listed({scene.root}, getpid()).empty());
  // Namespaces alone make no container.
  const pid_t pid = fork();
  if (pid == 0) {
    (void)unshare_namespaces(kUserNs | kMountNs);
    pause();
    _exit(0);
  }
  const std::string namespaces = "/proc/" + std::to_string(pid) + "/ns/mnt";
  for (int i = 0; i < 6000 && fs::read_symlink(namespaces) == fs::read_symlink("/proc/self/ns/mnt"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(fs::read_symlink(namespaces) != fs::read_symlink("/proc/self/ns/mnt"));
  CHECK(listed({scene.root}, pid).empty());
  (void)kill(pid, SIGKILL);
  (void)waitpid(pid, nullptr, 0);
}
