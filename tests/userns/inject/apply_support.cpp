#include "tests/userns/inject/apply_support.hpp"

#include <algorithm>
#include <filesystem>

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/mount_table.hpp"

namespace situla::test {

namespace fs = std::filesystem;

ApplyTest::ApplyTest() {
  for (const char* name : {"root/usr/lib", "root/etc", "root/dev", "host/library", "host/canary/directory"})
    fs::create_directories(dir / name);
  dir.write("host/libcuda.so.560.35.03", "the driver");
  dir.write("host/firmware.bin", "firmware");
  dir.write("host/library/one", "1");
  dir.write("host/library/two", "2");
  dir.write("host/canary/data", "outside");
  dir.write("host/canary/libcuda.so.560.35.03", "");
  dir.write("host/canary/directory/file", "content");
  dir.write("root/etc/hostname", "container");
  dir.write("root/usr/lib/libc.so.6", "libc");
}

void ApplyTest::own() const {
  if (geteuid() != 0) return;
  const std::string user = std::to_string(test_uid()) + ":" + std::to_string(test_gid());
  REQUIRE(std::system(("chmod -R u+rwX " + dir.path() + " && chown -hR " + user + " " + dir.path()).c_str()) == 0);
}

void ApplyTest::run(const SceneBody& body) const {
  own();
  for (const bool modern : {true, false}) {
    CAPTURE(modern);
    const auto before = snapshot(dir / "host");
    CHECK(run_as(body, modern) == "");
    CHECK(snapshot(dir / "host") == before);
  }
}

std::string ApplyTest::run_once(const SceneBody& body) const {
  own();
  return run_as(body, true);
}

std::string ApplyTest::run_as(const SceneBody& body, bool modern) const {
  const auto in_namespace = [&]() -> Result<void> {
    set_mount_api(modern ? MountApi::automatic : MountApi::classic);
    const std::string path = dir / "root";
    TRY_ASSIGN(const UniqueFd itself, open_file(path, O_PATH));
    TRY(bind_at(itself.get(), itself.get(), true, {}, path));
    TRY_ASSIGN(UniqueFd mounted, open_file(path, O_PATH));
    const RootDir root =
        modern ? RootDir::from_fd(std::move(mounted)) : RootDir::from_fd(std::move(mounted), ResolveMode::walk);
    MemoryLog log;
    TRY_ASSIGN(const auto before, mounts_outside(path));
    ApplyScene scene{dir / "host", path, root, log};
    TRY(body(scene));
    TRY_ASSIGN(const auto after, mounts_outside(path));
    // What the test itself mounts among the host's files.
    const auto is_mine = [&](const std::string& name) { return name.starts_with(scene.host + "/"); };
    std::vector<std::string> others;
    std::copy_if(after.begin(), after.end(), std::back_inserter(others),
                 [&](const std::string& name) { return !is_mine(name); });
    EXPECT(added_mounts(before, others).empty());
    return {};
  };
  return in_user_namespace(in_namespace, modern);
}

std::map<std::string, std::string> snapshot(const std::string& directory) {
  std::map<std::string, std::string> all;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    std::string& what = all[entry.path().string()];
    if (entry.is_symlink())
      what = "link " + fs::read_symlink(entry.path()).string();
    else if (entry.is_regular_file())
      what = "file " + read_file(entry.path().string()).value_or("unreadable");
    else
      what = entry.is_directory() ? "directory" : "other";
  }
  return all;
}

Result<std::vector<std::string>> mounts_outside(const std::string& path) {
  TRY_ASSIGN(const auto table, mount_table());
  std::vector<std::string> outside;
  for (const MountRecord& mount : table)
    if (mount.path != path && !mount.path.starts_with(path + "/")) outside.push_back(mount.path);
  std::sort(outside.begin(), outside.end());
  return outside;
}

std::vector<std::string> added_mounts(const std::vector<std::string>& before, const std::vector<std::string>& after) {
  std::vector<std::string> added;
  std::set_difference(after.begin(), after.end(), before.begin(), before.end(), std::back_inserter(added));
  return added;
}

Result<std::string> mount_options(const std::string& path) {
  TRY_ASSIGN(const std::string table, read_file("/proc/self/mountinfo"));
  std::string options;
  for (const std::string_view line : split_nonempty(table, '\n')) {
    const auto words = split_words(line);
    if (words.size() > 5 && words[4] == path) options = words[5];
  }
  return options;
}

Result<size_t> mount_count() {
  TRY_ASSIGN(const auto table, mount_table());
  return table.size();
}

bool is_device(const std::string& path, unsigned major_number, unsigned minor_number) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 && S_ISCHR(status.st_mode) &&
         status.st_rdev == makedev(major_number, minor_number);
}

bool fails_with(const Result<void>& result, const std::vector<std::string>& parts) {
  if (result) return false;
  const std::string text = result.error().text();
  const bool all = std::all_of(parts.begin(), parts.end(),
                               [&](const std::string& part) { return text.find(part) != std::string::npos; });
  if (!all) std::cerr << "the error was: " << text << std::endl;
  return all;
}

}  // namespace situla::test
