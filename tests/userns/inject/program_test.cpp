// Programs of the host that a specification names: what they get, and what becomes of those that fail.
#include <chrono>

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "tests/userns/inject/apply_support.hpp"

using namespace situla;
using namespace situla::test;

namespace {

ProgramEdit shell(const std::string& script, const std::vector<std::string>& environment = {}) {
  ProgramEdit edit;
  edit.path = "/bin/sh";
  edit.arguments = {"hook", "-c", script};
  edit.environment = environment;
  edit.origin = "/etc/cdi/test.yaml";
  return edit;
}

bool said(const ApplyScene& scene, const std::string& text) {
  return scene.log.count(LogLevel::info, text) == 1;
}

}  // namespace

TEST_CASE("A program gets the environment of its edit and a PATH, whatever this process and the image have") {
  ApplyTest().run([](ApplyScene& scene) -> Result<void> {
    (void)setenv("LD_PRELOAD_OF_TEST", "/evil.so", 1);
    ProgramEdit env = shell("");
    env.path = "/usr/bin/env";
    env.arguments = {"env"};
    env.environment = {"NVIDIA_CTK_DEBUG=false"};
    ContainerEdits edits = edits_of(env);
    edits.environment.set("LD_PRELOAD", "/evil.so");
    TRY(scene.apply(edits));
    EXPECT(scene.log.messages.size() == 1);
    EXPECT(scene.log.messages[0].text ==
           "/usr/bin/env: NVIDIA_CTK_DEBUG=false; "
           "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    scene.log.messages.clear();
    env.environment = {"PATH=/opt"};
    TRY(scene.apply(edits_of(env)));
    EXPECT(scene.log.messages.size() == 1 && scene.log.messages[0].text == "/usr/bin/env: PATH=/opt");
    return {};
  });
}

TEST_CASE("A program reads the OCI state and finds the root, and the bundle goes away") {
  ApplyTest().run([](ApplyScene& scene) -> Result<void> {
    const std::string script =
        R"(state=$(cat); bundle=${state#*\"bundle\":\"}; bundle=${bundle%%\"*}
           case $state in *'"status":"creating"'*) ;; *) exit 4;; esac
           case $state in *"\"root\":\")" +
        scene.path +
        R"(\""*) ;; *) exit 5;; esac
           grep -q '"path":")" +
        scene.path + R"("' "$bundle/config.json" || exit 6
           echo "bundle=$bundle")";
    TRY(scene.apply(edits_of(shell(script))));
    EXPECT(scene.log.messages.size() == 1);
    const std::string text = scene.log.messages[0].text;
    const std::string bundle = text.substr(text.find("bundle=") + 7);
    EXPECT(bundle.starts_with(scene.path.substr(0, scene.path.rfind('/')) + "/situla-bundle-"));
    EXPECT(access(bundle.c_str(), F_OK) != 0);
    return {};
  });
}

TEST_CASE("A program has no descriptor of ours, can gain nothing, and may mount in the root") {
  const ApplyTest test;
  test.dir.write("mountable", "");
  test.run([&](ApplyScene& scene) -> Result<void> {
    TRY(scene.apply(edits_of(shell("echo $(ls /proc/self/fd) end"))));
    // The fourth is the directory that ls reads.
    EXPECT(said(scene, "0 1 2 3 end"));
    TRY(scene.apply(edits_of(shell("grep NoNewPrivs /proc/self/status"))));
    EXPECT(said(scene, "NoNewPrivs:\\x091"));
    TRY(scene.apply(
        edits_of(shell("mount --bind " + scene.host + "/library " + scene.path + "/etc && echo mounted $(pwd)"))));
    EXPECT(said(scene, "mounted /"));
    EXPECT(access(scene.in_root("/etc/one").c_str(), F_OK) == 0);
    return {};
  });
}

TEST_CASE("A program that fails ends everything, with who asked for it and what it said") {
  ApplyTest().run([](ApplyScene& scene) -> Result<void> {
    EXPECT(fails_with(scene.apply(edits_of(shell("echo cannot find the driver >&2; exit 3"))),
                      {"/etc/cdi/test.yaml: run /bin/sh: exited with return code 3; it said: cannot find the driver"}));
    EXPECT(fails_with(scene.apply(edits_of(shell("kill -SEGV $$"))), {"was killed by SIGSEGV"}));
    ProgramEdit missing = shell("");
    missing.path = "/usr/bin/situla-none";
    EXPECT(fails_with(scene.apply(edits_of(missing)),
                      {"run /usr/bin/situla-none: open /usr/bin/situla-none: No such file"}));
    missing.path = "env";
    EXPECT(fails_with(scene.apply(edits_of(missing)), {"not an absolute path"}));
    // Much output, of which the end counts.
    EXPECT(fails_with(
        scene.apply(edits_of(shell("i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done; exit 1"))),
        {"exited with return code 1", "line 19999"}));
    return {};
  });
}

TEST_CASE("A program that hangs is killed with all that it started") {
  const ApplyTest test;
  CHECK(test.run_once([&](ApplyScene& scene) -> Result<void> {
    ProgramEdit hanging = shell("setsid sleep 4321 & echo $! >" + scene.path + "/pid; sleep 4322");
    hanging.limit = std::chrono::seconds(2);
    const auto began = std::chrono::steady_clock::now();
    EXPECT(fails_with(scene.apply(edits_of(hanging)), {"run /bin/sh: killed, as it ran for more than 2 s"}));
    EXPECT(std::chrono::steady_clock::now() - began < std::chrono::seconds(8));
    TRY_ASSIGN(const std::string pid, read_file(scene.in_root("/pid")));
    EXPECT(kill(std::stoi(pid), 0) != 0 && errno == ESRCH);
    return {};
  }) == "");
}

TEST_CASE("A program that writes without end is killed as well") {
  const ApplyTest test;
  CHECK(test.run_once([&](ApplyScene& scene) -> Result<void> {
    ProgramEdit endless = shell("for i in 1 2 3 4; do cat /dev/zero & done; wait");
    endless.limit = std::chrono::seconds(1);
    const auto began = std::chrono::steady_clock::now();
    EXPECT(fails_with(scene.apply(edits_of(endless)), {"killed, as it ran for more than 1 s"}));
    EXPECT(std::chrono::steady_clock::now() - began < std::chrono::seconds(8));
    return {};
  }) == "");
}

TEST_CASE("What a program leaves in the background does not hold up the start") {
  const ApplyTest test;
  CHECK(test.run_once([&](ApplyScene& scene) -> Result<void> {
    const auto began = std::chrono::steady_clock::now();
    TRY(scene.apply(edits_of(shell("sleep 7 & echo started"))));
    EXPECT(std::chrono::steady_clock::now() - began < std::chrono::seconds(6));
    EXPECT(said(scene, "started"));
    return {};
  }) == "");
}
