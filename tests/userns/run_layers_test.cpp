// Does a layered container behave like a directory tree: changes stay, several programs share it, and nothing is left?
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "hooks/containers/container_store.hpp"
#include "hooks/run/launch.hpp"
#include "tests/support/skip.hpp"
#include "tests/userns/run_support.hpp"

namespace fs = std::filesystem;
using namespace situla;
using namespace situla::test;

namespace {

using Seconds = std::chrono::duration<double>;

void pause_for(double seconds) {
  std::this_thread::sleep_for(Seconds(seconds));
}

template <typename Condition>
bool eventually(const Condition& condition) {
  for (int i = 0; i < 1000; ++i) {
    if (condition()) return true;
    pause_for(0.01);
  }
  return false;
}

constexpr unsigned kWritable = 1;
constexpr unsigned kRoot = 2;

/// A program in the container, running.
struct Running {
  pid_t pid = -1;
  std::string output_path;

  void kill_hard() const { REQUIRE(kill(pid, SIGKILL) == 0); }
  int wait() const {
    int status = 0;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  [[nodiscard]] std::string output() const { return get_file(output_path); }
};

/// A layered container of the busybox root, "c".
struct LayersScene : Scene {
  NamedContainer container;
  std::string why;  ///< there is none

  LayersScene() {
    host.set("ENROOT_RUNTIME_PATH", directory / "runtime");
    host.set("ENROOT_TEMP_PATH", directory / "temp");
    put_file(root + "/etc/rc", "exec \"$@\"\n");
    put_file(root + "/data/list/a", "a\n");
    put_file(root + "/data/list/b", "b\n");
    const std::string image = directory / "image.sqsh";
    REQUIRE(std::system(("mksquashfs " + root + " " + image + " -all-root -quiet -no-progress > /dev/null").c_str()) ==
            0);
    NullLog log;
    const EnrootConfig config = EnrootConfig::load(host, log).value();
    const UniqueFd file = open_file(image, O_RDONLY).value();
    const auto created = create_container(config, {data + "/c", false, StorageWish::layered, file.get(), false}, log);
    if (!created) why = created.error().message();
    if (created) container = find_container(config, "c").value();
    REQUIRE(unlink(image.c_str()) == 0);
  }

  Running begin(const std::string& script, unsigned options = 0) {
    Running running{-1, directory / ("output" + std::to_string(++count_))};
    put_file(running.output_path, "");
    running.pid = fork();
    if (running.pid != 0) return running;
    (void)dup2(open("/dev/null", O_RDONLY), 0);
    (void)dup2(open(running.output_path.c_str(), O_WRONLY | O_APPEND), 1);
    (void)dup2(1, 2);
    NullLog log;
    ContainerRequest request;
    request.root.kind = RootSource::Kind::layered;
    request.root.path = container.path;
    request.spec.writable = (options & kWritable) != 0 ? Tristate::yes : Tristate::unset;
    request.spec.remap_root = (options & kRoot) != 0 ? Tristate::yes : Tristate::unset;
    request.command = {"sh", "-c", script};
    auto completed = complete(std::move(request), host, log);
    const auto result = completed ? start_container(std::move(*completed), log) : fail(completed.error());
    if (!result) (void)write_all(2, result.error().text() + "\n");
    _exit(99);
  }

  std::string run(const std::string& script, unsigned options = 0) {
    const Running running = begin(script, options);
    const int code = running.wait();
    return running.output() + (code == 0 ? "" : "[" + std::to_string(code) + "]");
  }

  /// Nobody keeps the container's layers mounted.
  [[nodiscard]] bool idle() const {
    const auto file = open_file(container.state() + "/keeper", O_RDONLY);
    return !file || flock(file->get(), LOCK_EX | LOCK_NB) == 0;
  }

 private:
  int count_ = 0;
};

#define NEED_LAYERS(scene) \
  if (!(scene).why.empty()) SITULA_SKIP("no layered containers here: " + (scene).why)

}  // namespace

TEST_CASE("layers: what is changed stays, whoever changed it; a read-only start changes nothing") {
  LayersScene scene;
  NEED_LAYERS(scene);
  CHECK(scene.run("cat /data/list/*; touch /new").find("a\nb\n") == 0);
  CHECK(scene.run("echo changed > /data/list/a; rm /data/list/b; echo c > /data/list/c; mkdir /kept", kWritable) == "");
  const std::string expected = "changed\nc\n";
  CHECK(scene.run("cat /data/list/*; ls -d /kept") == expected + "/kept\n");
  CHECK(scene.run("cat /data/list/*; id -u", kRoot) == expected + "0\n");
  CHECK(scene.run("cat /data/list/*; id -u; rm -r /data/list; mkdir /data/list; echo d > /data/list/d",
                  kRoot | kWritable) == expected + "0\n");
  CHECK(scene.run("ls /data/list; touch /data/x || echo ro").find("d\n") == 0);
  CHECK(scene.run("ls /data/list; echo again > /data/list/a; cat /data/list/a", kWritable) == "d\nagain\n");
  CHECK(eventually([&] { return scene.idle(); }));
  CHECK(fs::is_empty(scene.directory / "runtime"));
}

TEST_CASE("layers: what package managers do: links, renames over files of the image, replaced directories") {
  LayersScene scene;
  NEED_LAYERS(scene);
  CHECK(scene
            .run("cd /data/list; ln a a.dpkg-tmp && echo new > a.dpkg-new && ln b hard && mv -f a.dpkg-new a && "
                 "rm a.dpkg-tmp && rm -r /data/list && mkdir /data/list && ln -s list /data/link && ls /data",
                 kRoot | kWritable)
            .find("link\nlist\n") == 0);
}

TEST_CASE("layers: writable starts at the same time see each other, as root and not, also when the first is killed") {
  LayersScene scene;
  NEED_LAYERS(scene);
  const std::string patiently =
      "wait_for() { i=0; while [ ! -e $1 ]; do sleep 0.02; i=$((i+1)); [ $i -gt 500 ] && exit 3; "
      "done; }; ";
  const Running first =
      scene.begin(patiently + "echo one > /new; mv /new /one; wait_for /two; echo saw two; sleep 1000", kWritable);
  const Running second =
      scene.begin(patiently +
                      "wait_for /one; cat /one; echo two > /two; wait_for /killed; ls /data/list; cat /bin/busybox "
                      "| cat > /copy; id -u",
                  kRoot | kWritable);
  REQUIRE(eventually([&] { return first.output() == "saw two\n"; }));
  first.kill_hard();
  CHECK(first.wait() == -SIGKILL);
  CHECK(scene.run("touch /killed", kWritable) == "");
  CHECK(second.wait() == 0);
  CHECK(second.output() == "one\na\nb\n0\n");
  CHECK(eventually([&] { return scene.idle(); }));
  CHECK(fs::file_size(scene.container.upper() + "/copy") == fs::file_size("/usr/bin/busybox"));
}

TEST_CASE("layers: what a container leaves running in the background keeps its files") {
  LayersScene scene;
  NEED_LAYERS(scene);
  CHECK(scene.run(
            "(while [ ! -e /go ]; do sleep 0.05; done; cat /bin/busybox > /copy; mv /copy /copied) > /dev/null 2>&1 "
            "& echo begun",
            kWritable) == "begun\n");
  pause_for(0.3);
  CHECK_FALSE(scene.idle());
  CHECK(scene.run("touch /go; while [ ! -e /copied ]; do sleep 0.05; done", kWritable) == "");
  CHECK(eventually([&] { return scene.idle(); }));
  CHECK(fs::file_size(scene.container.upper() + "/copied") == fs::file_size("/usr/bin/busybox"));
}

TEST_CASE("layers: twenty writable starts at once") {
  LayersScene scene;
  NEED_LAYERS(scene);
  std::vector<Running> all;
  for (int i = 0; i < 20; ++i)
    all.push_back(scene.begin("echo x > /n" + std::to_string(i), i % 2 == 0 ? kWritable : kWritable | kRoot));
  for (const Running& one : all) {
    CHECK(one.wait() == 0);
    CHECK(one.output() == "");
  }
  CHECK(scene.run("ls -d /n* | grep -c .") == "20\n");
}

TEST_CASE("layers: kill -9 at any moment of a start leaves nothing, and the next start works") {
  LayersScene scene;
  NEED_LAYERS(scene);
  for (int round = 0; round < 25; ++round) {
    const Running running = scene.begin("sleep 1000", round % 3 == 0 ? 0 : kWritable);
    pause_for(0.002 * (round % 25));
    running.kill_hard();
    CHECK(running.wait() == -SIGKILL);
  }
  CHECK(scene.run("touch /last; cat /data/list/a", kWritable) == "a\n");
  CHECK(eventually([&] { return scene.idle(); }));
}

TEST_CASE("layers: a container that goes away under a running one") {
  LayersScene scene;
  NEED_LAYERS(scene);
  const Running running = scene.begin("echo up; while [ ! -e /tmp/go ] && [ -d /tmp ]; do sleep 0.05; done", kWritable);
  REQUIRE(eventually([&] { return running.output() == "up\n"; }));
  NullLog log;
  CHECK(remove_container(EnrootConfig::load(scene.host, log).value(), "c", log));
  CHECK(fs::is_empty(scene.data));
  running.kill_hard();
  CHECK(running.wait() == -SIGKILL);
}

TEST_CASE("layers: a writable start waits for the hooks of another") {
  LayersScene scene;
  NEED_LAYERS(scene);
  put_file(scene.container.state() + "/lock", "");
  const UniqueFd lock = open_file(scene.container.state() + "/lock", O_RDWR).value();
  REQUIRE(flock(lock.get(), LOCK_EX) == 0);
  const Running running = scene.begin("true", kWritable);
  pause_for(0.5);
  REQUIRE(flock(lock.get(), LOCK_UN) == 0);
  CHECK(running.wait() == 0);
}
