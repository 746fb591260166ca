// Do scripts of sites and users run with enroot's contract, and does nothing of them stay? COMPAT.md 6.3 and 6, last
// lines.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <sstream>
#include <thread>

#include <pty.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/mount/namespaces.hpp"
#include "tests/support/as_user.hpp"
#include "tests/userns/start_scene.hpp"

namespace fs = std::filesystem;
using namespace situla;
using namespace situla::test;

namespace {

void wait_until(const std::function<bool()>& condition) {
  for (int i = 0; i < 1000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

std::vector<pid_t> pids_in(const std::string& path) {
  std::vector<pid_t> pids;
  std::istringstream words(get_file(path));
  for (pid_t pid = 0; words >> pid;) pids.push_back(pid);
  return pids;
}

bool alive(pid_t pid) {
  const std::string status = get_file("/proc/" + std::to_string(pid) + "/stat");
  return !status.empty() && status.find(") Z") == std::string::npos;
}

}  // namespace

TEST_CASE("hooks: variables, files, capabilities, directory") {
  StartScene scene;
  scene.host.set("HOST_VARIABLE", "seen");
  scene.host.set("ENROOT_ROOTFS_WRITABLE", "no");
  scene.put_hook("50-a.sh", R"SH(source "${ENROOT_LIBRARY_PATH}/common.sh"
common::checkcmd enroot-mount grep
[ -d "/proc/${ENROOT_PID}" ] && [ -d "${ENROOT_ROOTFS}/bin" ]
[ "${HOST_VARIABLE}" = seen ] && [ -z "${ENROOT_ROOTFS_WRITABLE-}" ] && [ -n "${ENROOT_LOGIN_SHELL}" ] && [ -n "${ENROOT_DATA_PATH}" ]
grep -q '^FROM_IMAGE=yes$' "${ENROOT_ENVIRON}"
grep '^CapEff' /proc/self/status
echo "dir $(pwd)"
echo "LICENSE=1055@host" >>"${ENROOT_ENVIRON}"
echo "BOTH='of the hook'" >>"${ENROOT_ENVIRON}"
sed -i '/^FROM_IMAGE=/d' "${ENROOT_ENVIRON}"
mkdir -p "${ENROOT_ROOTFS}/opt/site"
echo at once >"${ENROOT_ROOTFS}/opt/site/file"
echo "${HOME} /mnt/later none x-create=dir,bind,ro" >>"${ENROOT_MOUNTS}"
enroot-mount --root "${ENROOT_ROOTFS}" - <<<"tmpfs /mnt/now tmpfs x-create=dir,size=1m"
grep -q "${ENROOT_ROOTFS}/mnt/now" /proc/self/mounts
if grep -q "${ENROOT_ROOTFS}/mnt/later" /proc/self/mounts; then exit 2; fi
)SH");
  scene.put_hook("60-b.sh", "grep -q '^LICENSE=' \"${ENROOT_ENVIRON}\" && [ -e \"${ENROOT_ROOTFS}/opt/site/file\" ]\n");
  put_file(scene.directory / "home/file", "mine\n");
  const Ended ended = scene.start({"sh", "-c",
                                   "echo $LICENSE,$BOTH,$FROM_IMAGE; cat /opt/site/file /mnt/later/file; touch "
                                   "/mnt/now/x && echo ok; touch /mnt/later/x; env | grep -c ENROOT_"});
  INFO(ended.output);
  CHECK_THAT(ended.output,
             Catch::Contains("CapEff:\t000001ffffffffff") || Catch::Contains("CapEff:\t0000003fffffffff"));
  CHECK_THAT(ended.output, Catch::Contains("dir " + fs::current_path().string() + "\n"));
  CHECK_THAT(ended.output, Catch::Contains("1055@host,of the hook,\nat once\nmine\nok\n"));
  CHECK_THAT(ended.output, Catch::Contains("Read-only file system") && Catch::EndsWith("\n0\n"));
}

TEST_CASE("hooks: what fails ends the start, by name and code, and nothing is left") {
  StartScene scene;
  const std::string hook = scene.sysconf + "/hooks.d/50-a.sh";
  scene.put_hook("50-a.sh", "echo why it fails\nexit 7\n");
  Ended ended = scene.start({"true"});
  CHECK(ended.code == 1);
  CHECK(ended.output == "why it fails\n" + hook + " exited with return code 7 [hook]\n");
  scene.put_hook("50-a.sh", "kill -KILL $$\n");
  CHECK(scene.start({"true"}).output == hook + " exited with return code 137 [hook]\n");
  put_file(hook, "#!/no/such/interpreter\n", 0755);
  CHECK_THAT(scene.start({"true"}).output, Catch::Contains(hook) && Catch::Contains("first line"));
  put_file(hook, "[ -n \"${BASH_VERSION}\" ] && exit 9\n", 0755);
  CHECK(scene.start({"true"}).output == hook + " exited with return code 9 [hook]\n");
  scene.put_hook("50-a.sh", "source \"${ENROOT_LIBRARY_PATH}/common.sh\"\ncommon::err 'no licence'\n");
  CHECK(scene.start({"true"}).output == "[ERROR] no licence\n" + hook + " exited with return code 1 [hook]\n");
  scene.put_hook("50-a.sh", "echo '/no/such/source /x' >>\"${ENROOT_MOUNTS}\"\n");
  CHECK_THAT(scene.start({"true"}).output,
             Catch::Contains("ENROOT_MOUNTS:1: ") && Catch::Contains("/no/such/source: No such file"));
  scene.put_hook("50-a.sh", "enroot-mount --root \"${ENROOT_ROOTFS}\" - <<<'/no/such/source /x none bind'\n");
  CHECK_THAT(scene.start({"true"}).output,
             Catch::Contains("enroot-mount: standard input:1: bind /no/such/source on /x: ") &&
                 Catch::Contains("exited with return code 1"));
  scene.put_hook("50-a.sh", "exit 0\n");
  CHECK(scene.start({"sh", "-c", "exit 3"}).code == 3);
  CHECK(fs::is_empty(scene.directory / "runtime"));
}

TEST_CASE("enroot-mount: options, files, passes") {
  StartScene scene;
  scene.put_hook("50-a.sh", R"SH(
cat >"${ENROOT_RUNTIME_PATH}/table" <<END
tmpfs /one tmpfs x-create=dir 0 -1
# tmpfs /comment tmpfs x-create=dir
tmpfs /two tmpfs x-create=dir
tmpfs /three tmpfs x-create=dir 0 3
${HOME} /literal none x-create=dir,bind
END
enroot-mount --root "${ENROOT_ROOTFS}" --pass -1 "${ENROOT_RUNTIME_PATH}/table"
enroot-mount --root="${ENROOT_ROOTFS}" --pass=3 - <"${ENROOT_RUNTIME_PATH}/table"
mounted() { for m in one two three; do if grep -q "${ENROOT_ROOTFS}/$m " /proc/self/mounts; then echo -n "$m "; fi; done; echo; }
mounted
enroot-mount --root "${ENROOT_ROOTFS}/" "${ENROOT_RUNTIME_PATH}/table"
mounted
for words in "" "--root" "--pass x -" "--unknown -"; do enroot-mount ${words} </dev/null 2>&1 | tail -n 1 || true; done
echo '/no/such /x none bind,nofail' | enroot-mount --root "${ENROOT_ROOTFS}" - && echo skipped
)SH");
  const std::string output = scene.start({"true"}).output;
  CHECK_THAT(output,
             Catch::StartsWith(
                 "one three \none two three \nenroot-mount: no file given [option]\nenroot-mount: --root needs a "
                 "value [option]\nenroot-mount: invalid argument: --pass x [option]\nenroot-mount: unknown "
                 "option --unknown [option]\nenroot-mount: standard input:1: bind /no/such on /x: "));
  CHECK_THAT(output, Catch::EndsWith("skipped\n"));
}

TEST_CASE("hooks: a script that reads standard input gets the user's") {
  StartScene scene;
  scene.put_hook("50-a.sh", "read -r line; echo \"READ=${line}\" >>\"${ENROOT_ENVIRON}\"\n");
  CHECK(scene.start({"sh", "-c", "echo $READ; cat"}, "first\nsecond\n").output == "first\nsecond\n");
}

TEST_CASE("hooks of a step: output in the log, the error as with start") {
  StartScene scene;
  scene.put_hook("50-a.sh", "echo from the hook\necho MARK=1 >>\"${ENROOT_ENVIRON}\"\n[ ! -t 0 ]\n");
  const Outcome outcome = scene.run({"echo $MARK"});
  CHECK(outcome.error.empty());
  CHECK(outcome.log == "from the hook\n");
  CHECK(outcome.results.at("echo $MARK") == "1\n");
  scene.put_hook("60-b.sh", "echo reason >&2\nexit 3\n");
  const Outcome failed = scene.run({"true"});
  CHECK(failed.error == scene.sysconf + "/hooks.d/60-b.sh exited with return code 3 [hook]");
  CHECK(failed.log == "from the hook\nreason\n");
}

TEST_CASE("hooks: killed at any moment, the start leaves no process of a script behind") {
  StartScene scene;
  const std::string list = scene.directory / "pids";
  scene.host.set("LIST", list);
  scene.put_hook("50-a.sh",
                 "sleep 1000 &\nsetsid sleep 1000 &\n(sleep 1000 & echo $! >>\"${LIST}\"; exec sleep 1000) &\n"
                 "echo $$ $(jobs -p) >>\"${LIST}\"\nwait\n");
  for (const int number : {SIGKILL, SIGTERM, SIGINT}) {
    put_file(list, "");
    const pid_t pid = scene.begin({"true"});
    wait_until([&] { return pids_in(list).size() == 5; });
    const std::vector<pid_t> pids = pids_in(list);
    REQUIRE(pids.size() == 5);
    for (const pid_t script : pids) CHECK(alive(script));
    REQUIRE(kill(pid, number) == 0);
    CHECK(StartScene::end(pid, list).signal == number);
    wait_until([&] { return std::none_of(pids.begin(), pids.end(), alive); });
    for (const pid_t script : pids) CHECK_FALSE(alive(script));
  }
}

TEST_CASE("hooks, a configuration script and a PID namespace: killed at twenty moments, nothing is left") {
  StartScene scene;
  const std::string mark = "MARK=" + fs::path(scene.directory.path()).filename().string();
  scene.host.set("MARK", mark.substr(5));
  scene.put_hook("50-a.sh",
                 "for i in 1 2 3; do sleep 0.01 & done\nwait\nenroot-mount --root \"${ENROOT_ROOTFS}\" - <<<'tmpfs /m "
                 "tmpfs x-create=dir'\n");
  put_file(scene.directory / "conf", "environ() { sleep 0.01; env | grep ^MARK=; }\nhooks() { sleep 0.01; }\n");
  scene.request.start.configuration = scene.directory / "conf";
  scene.request.spec.unshare.pid = true;
  const auto marked = [&] {
    for (const auto& entry : fs::directory_iterator("/proc"))
      if (get_file(entry.path() / "environ").find(mark) != std::string::npos) return true;
    return false;
  };
  bool seen = false;
  for (int i = 0; i < 20; ++i) {
    const pid_t pid = scene.begin({"sh", "-c", "(sleep 1000 &); sleep 1000"});
    std::this_thread::sleep_for(std::chrono::milliseconds(7 * i));
    // On a machine that is too busy to have got there in any of these times.
    if (i == 19 && !seen) wait_until(marked);
    seen = seen || marked();
    REQUIRE(kill(pid, SIGKILL) == 0);
    CHECK(StartScene::end(pid, scene.directory / "output").signal == SIGKILL);
    // A script that was just being started when its guard noticed is there for a moment.
    int gone = 0;
    wait_until([&] { return (gone = marked() ? 0 : gone + 1) == 5; });
    CHECK(gone == 5);
    CHECK((!fs::exists(scene.directory / "runtime") || fs::is_empty(scene.directory / "runtime")));
  }
  CHECK(seen);
}

TEST_CASE("hooks: what a script starts for the container's life stays") {
  StartScene scene;
  scene.host.set("LIST", scene.directory / "pids");
  // No other program, and no file to open: what is not loaded when the root becomes the container's is not found any
  // more.
  scene.put_hook("50-a.sh",
                 "mkfifo \"${LIST}.fifo\"\nexec 9<>\"${LIST}.fifo\"\n(read -r -t 20 -u 9 _) </dev/null &>/dev/null "
                 "&\necho $! >\"${LIST}\"\n");
  const Ended ended = scene.start({"sh", "-c", "sleep 0.1; exit 4"});
  CHECK(ended.code == 4);
  const std::vector<pid_t> pids = pids_in(scene.directory / "pids");
  REQUIRE(pids.size() == 1);
  CHECK(alive(pids[0]));
  CHECK(kill(pids[0], SIGKILL) == 0);
}

TEST_CASE("conf: directives, the four functions in one shell, and what is stronger") {
  StartScene scene;
  scene.host.set("ENROOT_REMAP_ROOT", "no");
  scene.host.set("TAKEN", "from the host");
  put_file(scene.directory / "conf", R"SH(#!/bin/bash
#ENROOT_REMAP_ROOT=yes
#ENROOT_ROOTFS_WRITABLE y
memory="$# $1"
environ() {
  echo "WORDS=${memory}"
  echo "BOTH='of the script'"
  echo 'not a definition'
  env | grep '^TAKEN='
  memory=changed
}
mounts() {
  echo "tmpfs /mnt/${memory} tmpfs x-create=dir,size=1m"
}
hooks() {
  echo "MEMORY=${memory}" >>"${ENROOT_ENVIRON}"
  echo "tmpfs /mnt/hook tmpfs x-create=dir" >>"${ENROOT_MOUNTS}"
  common::log INFO "root is ${ENROOT_REMAP_ROOT}"
  echo to standard output
}
rc() {
  echo "rc with $# words: $1"
  exec "$@"
}
)SH");
  scene.request.start.configuration = scene.directory / "conf";
  scene.request.start.environment = {"GIVEN=1", "MEMORY=beaten by the hook"};
  Ended ended =
      scene.start({"sh", "-c", "id -u; echo $WORDS,$BOTH,$TAKEN,$MEMORY,$GIVEN; ls /mnt; touch /new && echo rw"});
  CHECK(ended.output ==
        "[INFO] root is yes\nto standard output\nrc with 3 words: sh\n0\n3 sh,of the script,from the "
        "host,changed,1\nchanged\nhook\nrw\n");
  put_file(scene.directory / "script", "echo --rc is stronger\n");
  scene.request.start.rc = scene.directory / "script";
  CHECK_THAT(scene.start({"true"}).output, Catch::EndsWith("--rc is stronger\n"));
  scene.request.start.rc.clear();
  scene.request.spec.remap_root = Tristate::no;
  put_file(scene.directory / "conf", "#ENROOT_REMAP_ROOT=yes\n");
  CHECK(scene.start({"id", "-u"}).output == std::to_string(getuid()) + "\n");
}

TEST_CASE("conf: what is wrong with the script ends the start") {
  StartScene scene;
  const std::string path = scene.directory / "conf";
  scene.request.start.configuration = path;
  const std::vector<std::pair<std::string, std::string>> table = {
      {"if then\n", "Invalid argument: " + path},
      {"exit 4\n", path + " exited with return code 4"},
      {"exit 0\n", path + " ended too soon"},
      {"false\n", path + " exited with return code 1"},
      {"environ() { return 5; }\n", path + " exited with return code 5"},
      {"hooks() { common::err 'no'; }\n", path + " exited with return code 1"},
      {"mounts() { echo /no/such/source; }\n", path + " mounts():1: "},
      {"hooks() { kill -KILL $$; }\n", path + " exited with return code 137"},
  };
  for (const auto& [script, message] : table) {
    INFO(script);
    put_file(path, script);
    const Ended ended = scene.start({"true"});
    CHECK(ended.code == 1);
    CHECK_THAT(ended.output, Catch::Contains(message));
  }
  fs::remove(path);
  CHECK_THAT(scene.start({"true"}).output, Catch::Contains("No such file or directory: " + path));
  const std::string list = scene.directory / "pids";
  put_file(path, "environ() { sleep 1000 & echo $! >'" + list + "'; }\n");
  CHECK(scene.start({"sh", "-c", "exit 6"}).code == 6);
  const std::vector<pid_t> left = pids_in(list);
  REQUIRE(left.size() == 1);
  (void)kill(left[0], SIGKILL);
}

TEST_CASE("common.sh: the functions that scripts of sites call") {
  StartScene scene;
  put_file(scene.directory / "text",
           "a ${ONE} ${NOT_SET} $ONE ${ONE}\n  # comment\n X='q'\nENROOT_Y=1\nZ=\"a b\" \nbad line\n");
  scene.host.set("ONE", "1");
  scene.host.set("TEXT", scene.directory / "text");
  scene.put_hook("50-a.sh", R"SH(source "${ENROOT_LIBRARY_PATH}/common.sh"
source "${ENROOT_LIBRARY_PATH}/common.sh"
not_exported=x
common::envsubst "${TEXT}" | head -n 1
common::envfmt "${TEXT}"; cat "${TEXT}"
common::getpwent | cut -d: -f3; common::getgrent | cut -d: -f3
d=$(common::mktmpdir test); mkdir "$d/x"; touch "$d/x/y"; chmod 0 "$d/x"; common::rmall "$d"; [ ! -e "$d" ]
common::realpath /proc/self/../self/../sys; echo
common::mountpoint /proc/self/ns; echo
common::read -r line </dev/null
common::readstrarray lines $'p\nq'; echo "${#lines[@]}"
echo 'from a pipe' | common::log WARN -
common::log INFO text NL
mkdir "${TEXT}.d"; printf '#!/bin/sh\necho part\n' >"${TEXT}.d/1.sh"; chmod +x "${TEXT}.d/1.sh"; touch "${TEXT}.d/2.sh"
common::runparts list .sh "${TEXT}.d" | wc -l; common::runparts exec .sh "${TEXT}.d"
common::debarch aarch64; echo
(common::checkcmd sh no-such-command) || echo "checked $?"
(common::realpath /no/such/dir/x) || echo "checked $?"
)SH");
  const std::string id = std::to_string(getuid());
  const std::string output = scene.start({"true"}).output;
  CHECK(output ==
        "a 1  $ONE 1\nX=q\nZ=a b\n" + id + "\n" + std::to_string(getgid()) +
            "\n/proc/sys\n/proc\n2\n[WARN] from a pipe\n[INFO] text\n2\npart\narm64\n[ERROR] Command not found: "
            "no-such-command\nchecked 1\n[ERROR] No such file or directory: /no/such/dir/x\nchecked 1\n");
}

TEST_CASE("start: user namespaces that are switched off are one clear message") {
  StartScene scene;
  const std::string failed = in_child([&]() -> Result<void> {
    const uid_t uid = getuid();
    const gid_t gid = getgid();
    TRY(unshare_namespaces(kUserNs));
    TRY(write_own_id_maps(uid, uid, gid, gid));
    TRY_ASSIGN(const UniqueFd limit, open_file("/proc/sys/user/max_user_namespaces", O_WRONLY));
    TRY(write_all(limit.get(), "0"));
    const Ended ended = scene.start({"true"});
    if (ended.code == 1 && ended.output.find("unshare user") == 0 &&
        ended.output.find(
            " [namespaces]\nhint: user namespaces are switched off: sysctl -w user.max_user_namespaces=") !=
            std::string::npos)
      return {};
    return fail(ErrorKind::failure, ended.output);
  });
  INFO(failed);
  CHECK(failed.empty());
  CHECK((!fs::exists(scene.directory / "runtime") || fs::is_empty(scene.directory / "runtime")));
}
