#include "tests/userns/inject/race.hpp"

#include <cstdlib>
#include <filesystem>

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/process.hpp"

namespace situla::test {
namespace {

namespace fs = std::filesystem;

/// What is exchanged with the directory: its name in the root, and where it leads.
void make_swaps(const ApplyScene& scene) {
  const std::string canary = scene.host + "/canary";
  for (const auto& entry : fs::directory_iterator(scene.path + "/usr")) fs::remove_all(entry.path());
  fs::remove_all(scene.host + "/../outside");
  for (const char* name : {"/usr/race", "/usr/race/below", "/usr/spare"}) fs::create_directories(scene.path + name);
  std::ofstream(scene.path + "/usr/race/data") << "inside";
  fs::create_directory_symlink(canary, scene.path + "/usr/absolute");
  fs::create_directory_symlink("../../host/canary", scene.path + "/usr/relative");
  fs::create_directory_symlink("../../../../../../../../../.." + canary, scene.path + "/usr/upwards");
  fs::create_symlink(canary + "/data", scene.path + "/usr/file");
}

[[noreturn]] void swap_for_ever(const ApplyScene& scene) {
  const std::string usr = scene.path + "/usr";
  const std::string outside = scene.host + "/../outside";
  for (;;) {
    for (const char* other : {"/absolute", "/relative", "/upwards", "/spare", "/file"}) {
      (void)exchange_names(usr + "/race", usr + other);
      (void)exchange_names(usr + "/race", usr + other);
    }
    // A directory leaves the root while somebody may be in it; what is made there is not the host's.
    (void)rename((usr + "/race").c_str(), outside.c_str());
    (void)rename(outside.c_str(), (usr + "/race").c_str());
    (void)exchange_names(usr + "/race/below", usr + "/spare");
  }
}

ContainerEdits all_kinds(const ApplyScene& scene) {
  MountStep cover = cover_step("/usr/race/below/cover");
  cover.on_failure = OnFailure::warn;
  MountStep library = host_file(scene.host + "/libcuda.so.560.35.03", "/usr/race/libcuda.so.560.35.03");
  MountStep from_image = host_file(scene.path + "/usr/race/data", "/etc/from-image");
  MountStep tree = host_file(scene.host + "/library", "/usr/race/below/tree", SourceType::directory);
  MountStep null = device("/dev/null", "/usr/race/null");
  library.on_failure = from_image.on_failure = tree.on_failure = null.on_failure = OnFailure::warn;
  return edits_of(cover, library, from_image, tree, null, link_change("/usr/race/libcuda.so.1", "libcuda.so.560.35.03"),
                  write_change("/usr/race/below/written", "text"));
}

/// 0 applied, 1 noticed, 2 refused; an error when the applier left the root.
Result<int> one_round(const ApplyScene& scene, const std::vector<std::string>& mounts,
                      const std::map<std::string, std::string>& files) {
  TRY(unshare_namespaces(kMountNs));
  TRY_ASSIGN(UniqueFd fd, open_file(scene.path, O_PATH));
  const RootDir root =
      modern_mount_api() ? RootDir::from_fd(std::move(fd)) : RootDir::from_fd(std::move(fd), ResolveMode::walk);
  MemoryLog log;
  const auto done = apply(all_kinds(scene), {root, scene.path}, log);
  if (const auto text = read_file(scene.path + "/etc/from-image"); text && !text->empty()) EXPECT(*text == "inside");
  TRY_ASSIGN(const auto outside, mounts_outside(scene.path));
  // A directory that left the root takes along what is mounted in it, which still is no directory of the host's.
  std::vector<std::string> others;
  for (const std::string& name : outside)
    if (name.find("/outside/") == std::string::npos) others.push_back(name);
  const auto more = added_mounts(mounts, others);
  if (!more.empty()) return fail(ErrorKind::failure, "mounts outside of the root: " + join(more, " "));
  EXPECT(snapshot(scene.host) == files);
  if (log.count(LogLevel::warning, "it is another file now") > 0) return 1;
  return done && log.count(LogLevel::warning, "") == 0 ? 0 : 2;
}

/// In a process, whose namespace goes away with it.
Result<int> round_in_child(const ApplyScene& scene, const std::vector<std::string>& mounts,
                           const std::map<std::string, std::string>& files) {
  int outcome = 0;
  const std::string answer = in_child([&]() -> Result<void> {
    TRY_ASSIGN(outcome, one_round(scene, mounts, files));
    // The only thing that comes back is a text.
    if (outcome != 0) return fail(ErrorKind::failure, outcome == 1 ? "NOTICED" : "REFUSED");
    return {};
  });
  if (answer.empty()) return 0;
  if (answer.starts_with("NOTICED")) return 1;
  if (answer.starts_with("REFUSED")) return 2;
  return fail(ErrorKind::failure, answer);
}

}  // namespace

std::chrono::seconds race_time() {
  const char* seconds = std::getenv("SITULA_RACE_SECONDS");
  return std::chrono::seconds(seconds != nullptr ? std::atoi(seconds) : 5);
}

Result<RaceReport> race(const ApplyScene& scene, std::chrono::milliseconds time) {
  make_swaps(scene);
  const auto files = snapshot(scene.host);
  TRY_ASSIGN(const auto mounts, mounts_outside(scene.path));
  TRY_ASSIGN(Child swapper, fork_child());
  if (!swapper) swap_for_ever(scene);
  RaceReport report;
  // On a busy machine the time alone may not be enough to show something.
  const auto showed_something = [&report] { return report.rounds > 10 && report.noticed + report.refused > 0; };
  const auto began = std::chrono::steady_clock::now();
  for (auto age = began - began; age < time || (!showed_something() && age < time + std::chrono::seconds(60));
       age = std::chrono::steady_clock::now() - began) {
    TRY_ASSIGN(const int outcome, round_in_child(scene, mounts, files));
    ++report.rounds;
    ++(outcome == 0 ? report.applied : outcome == 1 ? report.noticed : report.refused);
  }
  return report;
}

}  // namespace situla::test
