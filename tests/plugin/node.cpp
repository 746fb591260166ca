#include "tests/plugin/node.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <linux/close_range.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fs = std::filesystem;

namespace situla::test {
namespace {

const std::string kLibexec = SITULA_LIBEXEC_DIR;

std::string run(const std::string& script) {
  const int status = std::system(("set -e\n" + script).c_str());
  return status == 0 ? "" : "status " + std::to_string(status) + " from: " + script;
}

void put_program(const std::string& path, const std::string& script) {
  fs::create_directories(fs::path(path).parent_path());
  fs::remove(path);
  std::ofstream(path) << "#!/bin/sh\n" << script;
  fs::permissions(path, fs::perms(0755));
}

/// From here on changes beneath the directory are seen here only, and end with the program.
std::string cover(fs::path directory) {
  while (!fs::exists(directory)) directory = directory.parent_path();
  const std::string work = "/mnt/covers" + directory.string();
  return run("mkdir -p '" + work + "/upper' '" + work + "/work'\nmount -t overlay -o 'lowerdir=" + directory.string() +
             ",upperdir=" + work + "/upper,workdir=" + work + "/work' overlay '" + directory.string() + "'");
}

std::string make_user() {
  const std::string ids = std::to_string(kUserId) + ":" + std::to_string(kGroupId);
  return run("echo 'tester:x:" + ids + ":ordinary user:" + kHome + ":/bin/sh' >>/etc/passwd\n" + "mkdir " + kHome +
             "\nchown " + ids + " " + kHome + "\n" +
             "if [ -e /dev/fuse ]; then mknod -m 666 /mnt/fuse c 10 229; mount --bind /mnt/fuse /dev/fuse; fi");
}

std::string make_image() {
  return run(std::string("mkdir -p /mnt/root/bin /mnt/root/etc\ncp /usr/bin/busybox /mnt/root/bin\n") +
             "for name in sh ls echo id cat true; do ln -s busybox /mnt/root/bin/$name; done\n"
             "printf 'PATH=/bin\\nFROM_IMAGE=yes\\n' >/mnt/root/etc/environment\n"
             "mksquashfs /mnt/root " +
             kImage + " -all-root -quiet -no-progress >/dev/null\nrm -r /mnt/root");
}

/// The programs as they were built. Sanitized ones cannot look for leaks everywhere: LeakSanitizer needs ptrace(2).
std::string install_programs() {
  for (const std::string program : {SITULA_TEST_BROKER, SITULA_TEST_BUILDER}) {
    const std::string name = fs::path(program).filename();
    put_program(kLibexec + "/" + name,
                "ASAN_OPTIONS=exitcode=99:detect_leaks=" + std::string(name == "situla-broker" ? "1" : "0") +
                    "\nexport ASAN_OPTIONS\n" + "exec '" + kLibexec + "/programs/" + name + "' \"$@\"\n");
  }
  std::string commands = "mkdir -p '" + kLibexec + "/programs'\n";
  for (const std::string program : {SITULA_TEST_BROKER, SITULA_TEST_BUILDER})
    commands += "cp '" + program + "' '" + kLibexec + "/programs'\n";
  commands += std::string("cp '") + SITULA_TEST_PRINTENV + "' '" + kLibexec + "'\n";
  return run(commands);
}

std::string make_node() {
  // What the tests were started with is not for the tasks.
  (void)close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  // What outlives its parent becomes a child of this program, which then sees how it ends.
  if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0 || unshare(CLONE_NEWNS) != 0 ||
      mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("node", "/mnt", "tmpfs", 0, "mode=755") != 0 || mount("run", "/run", "tmpfs", 0, "mode=755") != 0)
    return "no private mount namespace can be made here";
  for (const char* path : {"/etc", SITULA_LIBEXEC_DIR})
    if (std::string problem = cover(path); !problem.empty()) return problem;
  // What an administrator of this machine has set up for its own Situla is not what is tested.
  for (const char* own : {"/etc/situla", "/etc/enroot"}) fs::remove_all(own);
  for (const auto& step : {make_user, make_image, install_programs})
    if (std::string problem = step(); !problem.empty()) return problem;
  fs::rename(kLibexec + "/situla-broker", kLibexec + "/broker.real");
  put_program(kBatchScript, std::string(kTaskScript) + "\n");
  // Nobody listens; the end of the step is heard, and not answered. Everything else succeeds.
  put_program(kLibexec + "/broker.deserter", "test $# = 0 || exit 0\nexec 4<&-\nexec head -c 1 <&3 >/dev/null\n");
  return "";
}

}  // namespace

std::string use_node(Broker broker) {
  static const std::string problem = make_node();
  if (!problem.empty()) return problem;
  const std::string program = kLibexec + "/situla-broker";
  fs::remove(program);
  if (broker == Broker::real) fs::create_hard_link(kLibexec + "/broker.real", program);
  if (broker == Broker::deserter) fs::create_hard_link(kLibexec + "/broker.deserter", program);
  return "";
}

}  // namespace situla::test
