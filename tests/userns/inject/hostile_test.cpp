// Images that try to lead the applier out of the root: whatever it says about them, the host stays as it was.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "tests/support/elf_library.hpp"
#include "tests/userns/inject/apply_support.hpp"

using namespace situla;
using namespace situla::test;

namespace fs = std::filesystem;

namespace {

const std::string kLibrary = "libcuda.so.560.35.03";

/// What an injection does to a library directory.
ContainerEdits injection(const ApplyScene& scene, const std::string& directory) {
  return edits_of(host_file(scene.host + "/" + kLibrary, directory + "/" + kLibrary),
                  device("/dev/null", directory + "/device"), link_change(directory + "/libcuda.so.1", kLibrary),
                  write_change(directory + "/written", "text"));
}

/// What a link in the root that should lead to the host's canary looks like.
std::vector<std::string> ways_out(const ApplyTest& test) {
  std::string up;
  for (int level = 0; level < 40; ++level) up += "../";
  return {test.dir / "host/canary", up + (test.dir / "host/canary").substr(1), "../../host/canary",
          "/proc/self/root" + (test.dir / "host/canary"), "/proc/self/cwd"};
}

bool exists(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0;
}

}  // namespace

TEST_CASE("A library directory that is a link out of the root is made inside, or refused") {
  const size_t count = ways_out(ApplyTest()).size();
  for (size_t i = 0; i < count; ++i) {
    const ApplyTest test;
    const std::string way = ways_out(test)[i];
    CAPTURE(way);
    fs::create_directory_symlink(way, test.dir / "root/usr/lib64");
    test.run([&](ApplyScene& scene) -> Result<void> {
      // Seen from inside, the path names a directory that is not there; it is made there.
      TRY(scene.apply(injection(scene, "/usr/lib64")));
      TRY_ASSIGN(const std::string text, scene.root.read_file("/usr/lib64/" + kLibrary));
      EXPECT(text == "the driver");
      return {};
    });
  }
}

TEST_CASE("A library directory that is the root itself, or above it, is the root") {
  for (const char* way : {"/", "..", "../../..", "../../../../../../../../..", "/usr/../..", "."}) {
    CAPTURE(way);
    const ApplyTest test;
    fs::create_directory_symlink(way, test.dir / "root/usr/lib64");
    test.run([&](ApplyScene& scene) -> Result<void> {
      TRY(scene.apply(injection(scene, "/usr/lib64")));
      const std::string place = way == std::string(".") ? "/usr/" : "/";
      TRY_ASSIGN(const std::string text, read_file(scene.path + place + kLibrary));
      EXPECT(text == "the driver");
      EXPECT(is_device(scene.path + place + "device", 1, 3));
      return {};
    });
  }
}

TEST_CASE("Links that lead in circles, or are too many, are an error that says so") {
  const ApplyTest test;
  fs::create_symlink("loop2", test.dir / "root/usr/loop1");
  fs::create_symlink("loop1", test.dir / "root/usr/loop2");
  fs::create_directory(test.dir / "root/usr/chain0");
  for (int i = 1; i <= 60; ++i)
    fs::create_directory_symlink("chain" + std::to_string(i - 1), test.dir / ("root/usr/chain" + std::to_string(i)));
  test.run([&](ApplyScene& scene) -> Result<void> {
    for (const char* directory : {"/usr/loop1", "/usr/chain60"}) {
      EXPECT(fails_with(scene.apply(injection(scene, directory)), {directory, "symbolic links", "hint: "}));
      EXPECT(!scene.apply(edits_of(link_change(std::string(directory) + "/x", "y"))));
    }
    return scene.apply(injection(scene, "/usr/chain30"));
  });
}

TEST_CASE("Dangling links are followed inside only, to files and to directories") {
  const ApplyTest test;
  fs::create_symlink("/none/of/it", test.dir / "root/usr/lib64");
  fs::create_symlink(test.dir / "host/canary/new", test.dir / "root/etc/nvidia");
  test.run([&](ApplyScene& scene) -> Result<void> {
    TRY(scene.apply(injection(scene, "/usr/lib64")));
    EXPECT(exists(scene.in_root("/none/of/it/" + kLibrary)));
    TRY(scene.apply(edits_of(host_file(scene.host + "/firmware.bin", "/etc/nvidia"))));
    TRY_ASSIGN(const std::string text, scene.root.read_file("/etc/nvidia"));
    EXPECT(text == "firmware");
    return {};
  });
}

TEST_CASE("Where another type of file is, it is mounted over or refused, and never opened") {
  const ApplyTest test;
  // Opened for reading or writing, a pipe without another end would block for ever.
  REQUIRE(mkfifo((test.dir / "root/etc/pipe").c_str(), 0666) == 0);
  fs::create_directory(test.dir / "root/etc/directory");
  test.dir.write("root/etc/file", "file");
  fs::create_symlink("/dev/null", test.dir / "root/etc/device");
  test.run([&](ApplyScene& scene) -> Result<void> {
    const std::string source = scene.host + "/firmware.bin";
    TRY(scene.apply(edits_of(host_file(source, "/etc/pipe"))));
    TRY_ASSIGN(const std::string text, read_file(scene.in_root("/etc/pipe")));
    EXPECT(text == "firmware");
    EXPECT(fails_with(scene.apply(edits_of(host_file(source, "/etc/directory"))),
                      {"mount on /etc/directory: Is a directory", "hint: "}));
    EXPECT(fails_with(scene.apply(edits_of(host_file(source, "/etc/file/below"))), {"/etc/file", "Not a directory"}));
    const MountStep tree = host_file(scene.host + "/library", "/etc/file", SourceType::directory);
    EXPECT(fails_with(scene.apply(edits_of(tree)), {"/etc/file", "Not a directory"}));
    EXPECT(fails_with(scene.apply(edits_of(device("/dev/null", "/etc/directory"))), {"Is a directory"}));
    // /dev/null of the container, a file now; the host's stays a device.
    TRY(scene.apply(edits_of(host_file(source, "/etc/device"))));
    TRY_ASSIGN(const std::string inside, scene.root.read_file("/dev/null"));
    EXPECT(inside == "firmware" && is_device("/dev/null", 1, 3));
    MountStep cover = cover_step("/etc/file");
    EXPECT(fails_with(scene.apply(edits_of(cover)), {"cover /etc/file: ", "Not a directory"}));
    return {};
  });
}

TEST_CASE("A cover or directory of the root itself is refused") {
  const ApplyTest test;
  fs::create_directory_symlink("/", test.dir / "root/usr/lib64");
  test.run([&](ApplyScene& scene) -> Result<void> {
    MountStep cover = cover_step("");
    for (const char* target : {"/", "/usr/lib64", "/usr/.."}) {
      cover.target = target;
      EXPECT(!scene.apply(edits_of(cover)));
      EXPECT(!scene.apply(edits_of(host_file(scene.host + "/library", target, SourceType::directory))));
    }
    EXPECT(exists(scene.in_root("/etc/hostname")));
    return {};
  });
}

TEST_CASE("Where /proc or /sys is a link of the image, nothing is put there") {
  const ApplyTest test;
  fs::create_directory_symlink("/etc", test.dir / "root/proc");
  fs::create_directory_symlink(test.dir / "host/canary", test.dir / "root/sys");
  test.run([&](ApplyScene& scene) -> Result<void> {
    EXPECT(fails_with(scene.apply(edits_of(host_file(scene.host + "/firmware.bin", "/proc/driver/nvidia/params"))),
                      {"/proc is a link in this image"}));
    MountStep cover = cover_step("/sys/class/infiniband");
    EXPECT(fails_with(scene.apply(edits_of(cover)), {"/sys is a link in this image"}));
    return {};
  });
}

TEST_CASE("Nothing is made in a directory of the host that is mounted in the root") {
  const ApplyTest test;
  fs::create_directory(test.dir / "root/shared");
  fs::create_directory_symlink("/shared/directory", test.dir / "root/usr/lib64");
  // A file system that the container shares with the host, and one of its own.
  test.run([&](ApplyScene& scene) -> Result<void> {
    const std::string host = scene.host + "/library";
    TRY_ASSIGN(const UniqueFd library, open_file(host, O_PATH));
    TRY(mount_new_at(library.get(), "tmpfs", "tmpfs", {}, {}, host));
    TRY(make_directories(host + "/directory", 0755));
    TRY_ASSIGN(const UniqueFd source, open_file(host, O_PATH));
    TRY_ASSIGN(const UniqueFd target, open_file(scene.in_root("/shared"), O_PATH));
    TRY(bind_at(target.get(), source.get(), true, {}, "/shared"));
    for (const char* directory : {"/shared", "/shared/new", "/usr/lib64"}) {
      const auto refused = scene.apply(injection(scene, directory));
      EXPECT(fails_with(refused, {"the directory is the host's", host, "hint: "}));
      EXPECT(refused.error().kind() == ErrorKind::denied);
      EXPECT(!scene.apply(edits_of(link_change(std::string(directory) + "/link", "x"))));
      EXPECT(!scene.apply(edits_of(write_change(std::string(directory) + "/file", "x"))));
      EXPECT(
          !scene.apply(edits_of(FileChange{FileChange::Kind::directory, std::string(directory) + "/made", "", 0755})));
    }
    EXPECT(fs::is_empty(host + "/directory") && std::distance(fs::directory_iterator(host), {}) == 1);
    // What is there can be mounted on.
    MountStep cover = cover_step("/shared/directory");
    TRY(scene.apply(edits_of(cover)));
    return scene.apply(injection(scene, "/shared/directory"));
  });
}

TEST_CASE("No library cache and no SONAME link comes into a directory of the host that is mounted in the root") {
  const ApplyTest test;
  fs::create_directory(test.dir / "root/shared");
  fs::remove_all(test.dir / "root/etc");
  fs::create_directory_symlink("/shared", test.dir / "root/etc");
  test.run([&](ApplyScene& scene) -> Result<void> {
    const std::string host = scene.host + "/library";
    TRY_ASSIGN(const UniqueFd library, open_file(host, O_PATH));
    TRY(mount_new_at(library.get(), "tmpfs", "tmpfs", {}, {}, host));
    TRY(write_file_atomically(host + "/libsitula.so.1.2", elf_library("libsitula.so.1"), 0644));
    TRY_ASSIGN(const UniqueFd source, open_file(host, O_PATH));
    TRY_ASSIGN(const UniqueFd target, open_file(scene.in_root("/shared"), O_PATH));
    TRY(bind_at(target.get(), source.get(), true, {}, "/shared"));
    ContainerEdits edits;
    edits.libraries.directories = {"/shared"};
    TRY(scene.apply(edits));
    EXPECT(scene.log.count(LogLevel::warning, "libraries of the host") == 1);
    EXPECT(std::distance(fs::directory_iterator(host), {}) == 1);
    return {};
  });
}

TEST_CASE("A source beneath the root is looked for inside it") {
  const ApplyTest test;
  test.dir.write("root/usr/inside", "inside");
  fs::create_symlink(test.dir / "host/canary/data", test.dir / "root/usr/out");
  fs::create_symlink("/usr/inside", test.dir / "root/usr/in");
  test.run([&](ApplyScene& scene) -> Result<void> {
    EXPECT(fails_with(scene.apply(edits_of(host_file(scene.in_root("/usr/out"), "/etc/a"))), {"No such file"}));
    TRY(scene.apply(edits_of(host_file(scene.in_root("/usr/in"), "/etc/a"))));
    TRY_ASSIGN(const std::string text, read_file(scene.in_root("/etc/a")));
    EXPECT(text == "inside");
    return {};
  });
}
