// Devices, mounts, covers and files as a container's processes find them, with real character devices.
#include "hooks/inject/edits/apply.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/mount/mount_api.hpp"
#include "tests/userns/inject/apply_support.hpp"

using namespace situla;
using namespace situla::test;

namespace {

bool has(const std::string& options, std::string_view word) {
  for (const std::string_view option : split(options, ','))
    if (option == word) return true;
  return false;
}

/// Mounts the file or directory on itself with these flags, as a host may have it.
Result<void> mount_with_flags(const std::string& path, const MountFlags& flags) {
  TRY_ASSIGN(const UniqueFd itself, open_file(path, O_PATH));
  return bind_at(itself.get(), itself.get(), false, flags, path);
}

}  // namespace

TEST_CASE("A device of the host can be opened for reading and writing inside") {
  ApplyTest().run([](ApplyScene& scene) -> Result<void> {
    MountStep null = device("/dev/null", "/dev/nvidia0");
    null.number = DeviceNumber{'c', 1, 3};
    TRY(scene.apply(edits_of(null, device("/dev/zero", "/dev/nvidia-caps/nvidia-cap1"))));
    EXPECT(is_device(scene.in_root("/dev/nvidia0"), 1, 3));
    const UniqueFd fd(open(scene.in_root("/dev/nvidia0").c_str(), O_RDWR | O_CLOEXEC));
    EXPECT(fd && write(fd.get(), "x", 1) == 1);
    const UniqueFd zero(open(scene.in_root("/dev/nvidia-caps/nvidia-cap1").c_str(), O_RDWR | O_CLOEXEC));
    char byte = 'x';
    EXPECT(zero && read(zero.get(), &byte, 1) == 1 && byte == '\0');
    TRY_ASSIGN(const std::string options, mount_options(scene.in_root("/dev/nvidia0")));
    EXPECT(has(options, "ro") && has(options, "nosuid") && has(options, "noexec"));
    EXPECT(!has(options, "nodev"));
    EXPECT(chmod(scene.in_root("/dev/nvidia0").c_str(), 0600) != 0 && errno == EROFS);
    return {};
  });
}

TEST_CASE("A device that is there already is left alone") {
  ApplyTest().run([](ApplyScene& scene) -> Result<void> {
    const ContainerEdits edits = edits_of(device("/dev/null", "/dev/nvidia0"));
    TRY(scene.apply(edits));
    TRY_ASSIGN(const size_t before, mount_count());
    TRY(scene.apply(edits));
    TRY_ASSIGN(const size_t after, mount_count());
    EXPECT(after == before);
    // Another device at the same place is not.
    TRY(scene.apply(edits_of(device("/dev/zero", "/dev/nvidia0"))));
    EXPECT(is_device(scene.in_root("/dev/nvidia0"), 1, 5));
    // Nor one that nobody could open.
    TRY(scene.apply(edits_of(device("/dev/null", "/dev/nvidia1"))));
    TRY_ASSIGN(const UniqueFd node, open_file(scene.in_root("/dev/nvidia1"), O_PATH));
    TRY(add_mount_flags(node.get(), {.no_dev = true}, false));
    EXPECT(open(scene.in_root("/dev/nvidia1").c_str(), O_RDWR) < 0);
    TRY(scene.apply(edits_of(device("/dev/null", "/dev/nvidia1"))));
    const UniqueFd fd(open(scene.in_root("/dev/nvidia1").c_str(), O_RDWR | O_CLOEXEC));
    EXPECT(fd);
    return {};
  });
}

TEST_CASE("What is no device, or another one, is refused with both numbers") {
  ApplyTest().run([](ApplyScene& scene) -> Result<void> {
    MountStep wrong = device("/dev/null", "/dev/nvidia0");
    wrong.number = DeviceNumber{'c', 195, 0};
    wrong.origin = "NVIDIA_VISIBLE_DEVICES";
    EXPECT(fails_with(scene.apply(edits_of(wrong)), {"NVIDIA_VISIBLE_DEVICES: device /dev/null on /dev/nvidia0: ",
                                                     "c 195:0", "c 1:3 [gpu-driver]\nhint: "}));
    EXPECT(fails_with(scene.apply(edits_of(device(scene.host + "/firmware.bin", "/dev/nvidia0"))),
                      {"firmware.bin: it has to be a device and is a regular file"}));
    EXPECT(fails_with(scene.apply(edits_of(device("/dev/situla-none", "/dev/nvidia0"))),
                      {"test: device /dev/situla-none on /dev/nvidia0: open /dev/situla-none: No such file"}));
    EXPECT(access(scene.in_root("/dev/nvidia0").c_str(), F_OK) != 0);
    return {};
  });
}

TEST_CASE("A device from a mount with nodev is refused, and the mount is named") {
  ApplyTest().run([](ApplyScene& scene) -> Result<void> {
    const std::string place = scene.host + "/firmware.bin";
    TRY_ASSIGN(const UniqueFd null, open_file("/dev/null", O_PATH));
    TRY_ASSIGN(const UniqueFd target, open_file(place, O_PATH));
    TRY(bind_at(target.get(), null.get(), false, {.no_dev = true}, place));
    EXPECT(fails_with(scene.apply(edits_of(device(place, "/dev/nvidia0"))),
                      {"the mount at " + place + " has the flag nodev", "hint: "}));
    return {};
  });
}

TEST_CASE("A device that the user may not open is given, with a warning that says why") {
  std::string node;
  for (const char* name : {"/dev/kmsg", "/dev/mem", "/dev/console", "/dev/loop-control", "/dev/port"}) {
    struct stat status {};
    if (stat(name, &status) == 0 && S_ISCHR(status.st_mode) && status.st_uid == 0 && (status.st_mode & 07) == 0)
      node = name;
  }
  if (node.empty()) SITULA_SKIP("no device that is closed to ordinary users");
  ApplyTest().run([&](ApplyScene& scene) -> Result<void> {
    TRY(scene.apply(edits_of(device(node, "/dev/nvidia0"))));
    EXPECT(scene.log.count(LogLevel::warning, "test: open " + node + ": ") == 1);
    return {};
  });
}

TEST_CASE("Files, directories and sockets are mounted with the flags that were asked for") {
  const ApplyTest test;
  test.run([](ApplyScene& scene) -> Result<void> {
    MountStep library = host_file(scene.host + "/libcuda.so.560.35.03", "/usr/lib64/libcuda.so.560.35.03");
    MountStep tree = host_file(scene.host + "/library", "/opt/driver", SourceType::directory);
    tree.recursive = true;
    tree.flags.no_exec = true;
    TRY(scene.apply(edits_of(library, tree)));
    TRY_ASSIGN(const std::string text, read_file(scene.in_root("/usr/lib64/libcuda.so.560.35.03")));
    EXPECT(text == "the driver");
    TRY_ASSIGN(const std::string flags, mount_options(scene.in_root("/usr/lib64/libcuda.so.560.35.03")));
    EXPECT(has(flags, "ro") && has(flags, "nosuid") && has(flags, "nodev") && !has(flags, "noexec"));
    EXPECT(open(scene.in_root("/usr/lib64/libcuda.so.560.35.03").c_str(), O_WRONLY) < 0 && errno == EROFS);
    TRY_ASSIGN(const std::string one, read_file(scene.in_root("/opt/driver/one")));
    EXPECT(one == "1");
    TRY_ASSIGN(const std::string more, mount_options(scene.in_root("/opt/driver")));
    EXPECT(has(more, "noexec"));
    return {};
  });
}

TEST_CASE("A service of the host is reached through its socket") {
  ApplyTest().run([](ApplyScene& scene) -> Result<void> {
    const UniqueFd server(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    EXPECT(chdir(scene.host.c_str()) == 0);
    const ScopeExit remove([&] { (void)unlink((scene.host + "/socket").c_str()); });
    std::string("socket").copy(static_cast<char*>(address.sun_path), sizeof address.sun_path - 1);
    EXPECT(bind(server.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    EXPECT(listen(server.get(), 1) == 0);
    MountStep edit = host_file(scene.host + "/socket", "/run/nvidia-persistenced/socket", SourceType::socket);
    edit.flags = {.no_suid = true, .no_dev = true, .no_exec = true};
    TRY(scene.apply(edits_of(edit)));
    EXPECT(chdir(scene.in_root("/run/nvidia-persistenced").c_str()) == 0);
    const UniqueFd client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT(connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    // Twice is as good: a socket that is there is no reason to fail.
    TRY(scene.apply(edits_of(edit)));
    EXPECT(chdir("/") == 0);
    return {};
  });
}

TEST_CASE("A source of another type is refused before anything is made") {
  ApplyTest().run([](ApplyScene& scene) -> Result<void> {
    const std::string file = scene.host + "/firmware.bin";
    EXPECT(fails_with(scene.apply(edits_of(host_file(file, "/a/b", SourceType::directory))),
                      {"test: mount " + file + " on /a/b: use ", "has to be a directory and is a regular file"}));
    EXPECT(fails_with(scene.apply(edits_of(host_file(file, "/a/b", SourceType::socket))), {"has to be a socket"}));
    EXPECT(fails_with(scene.apply(edits_of(host_file(scene.host + "/library", "/a/b"))),
                      {"has to be a regular file and is a directory"}));
    EXPECT(fails_with(scene.apply(edits_of(host_file("/dev/null", "/a/b"))), {"is a character device"}));
    EXPECT(fails_with(scene.apply(edits_of(host_file("firmware.bin", "/a/b"))), {"not an absolute path"}));
    EXPECT(access(scene.in_root("/a").c_str(), F_OK) != 0);
    return {};
  });
}

TEST_CASE("A device among the mounts of a specification can be opened") {
  ApplyTest().run([](ApplyScene& scene) -> Result<void> {
    EXPECT(symlink("/dev/null", (scene.host + "/by-path").c_str()) == 0);
    const ScopeExit remove([&] { (void)unlink((scene.host + "/by-path").c_str()); });
    TRY(scene.apply(edits_of(host_file(scene.host + "/by-path", "/dev/dri/by-path/pci-0", SourceType::any))));
    const UniqueFd fd(open(scene.in_root("/dev/dri/by-path/pci-0").c_str(), O_RDWR | O_CLOEXEC));
    EXPECT(fd);
    return {};
  });
}

TEST_CASE("What may be missing is skipped, with a warning or without") {
  ApplyTest().run([](ApplyScene& scene) -> Result<void> {
    MountStep missing = host_file(scene.host + "/none", "/opt/none");
    const auto failed = scene.apply(edits_of(missing));
    EXPECT(fails_with(failed, {"test: mount " + scene.host + "/none on /opt/none: open "}));
    EXPECT(failed.error().kind() == ErrorKind::not_found);
    missing.on_failure = OnFailure::warn;
    MountStep none = device("/dev/situla-none", "/dev/none");
    none.on_failure = OnFailure::warn;
    MountStep cover = cover_step("/etc/hostname/x");
    cover.on_failure = OnFailure::warn;
    cover.origin = "test";
    TRY(scene.apply(edits_of(missing, none, cover, host_file(scene.host + "/firmware.bin", "/lib/firmware/a.bin"))));
    EXPECT(scene.log.count(LogLevel::warning, "") == 3);
    EXPECT(access(scene.in_root("/opt").c_str(), F_OK) != 0);
    EXPECT(access(scene.in_root("/lib/firmware/a.bin").c_str(), F_OK) == 0);
    scene.log.messages.clear();
    missing.on_failure = OnFailure::ignore;
    TRY(scene.apply(edits_of(missing)));
    EXPECT(scene.log.count(LogLevel::warning, "") == 0);
    return {};
  });
}

TEST_CASE("A library that nobody could load because of noexec is refused, and the mount is named") {
  ApplyTest().run([](ApplyScene& scene) -> Result<void> {
    const std::string library = scene.host + "/libcuda.so.560.35.03";
    TRY(mount_with_flags(library, {.no_exec = true}));
    EXPECT(fails_with(scene.apply(edits_of(host_file(library, "/usr/lib/libcuda.so.1"))),
                      {"the mount at " + library + " has the flag noexec", "[mount-source]\nhint: "}));
    // Data need not be run.
    TRY(mount_with_flags(scene.host + "/firmware.bin", {.no_exec = true}));
    return scene.apply(edits_of(host_file(scene.host + "/firmware.bin", "/lib/firmware/a.bin")));
  });
}

TEST_CASE("Flags that the source's mount has already are no obstacle, and stay") {
  ApplyTest().run([](ApplyScene& scene) -> Result<void> {
    const std::string file = scene.host + "/firmware.bin";
    TRY(mount_with_flags(file, {.read_only = true, .no_suid = true, .no_dev = true, .no_exec = true}));
    // In a namespace that is not the one which set them they are locked.
    const uid_t uid = geteuid();
    const gid_t gid = getegid();
    TRY(unshare_namespaces(kUserNs | kMountNs));
    TRY(write_own_id_maps(uid, uid, gid, gid));
    TRY_ASSIGN(const RootDir root, RootDir::open(scene.path));
    MountStep edit = host_file(file, "/lib/firmware/a.bin");
    edit.flags = {.no_suid = true};
    TRY(apply(edits_of(edit), {root, scene.path}, scene.log));
    TRY_ASSIGN(const std::string flags, mount_options(scene.in_root("/lib/firmware/a.bin")));
    EXPECT(has(flags, "ro") && has(flags, "nosuid") && has(flags, "nodev") && has(flags, "noexec"));
    return {};
  });
}

TEST_CASE("The same file is not mounted on itself") {
  ApplyTest().run([](ApplyScene& scene) -> Result<void> {
    MountStep edit = host_file(scene.host + "/library", "/data", SourceType::directory);
    TRY(scene.apply(edits_of(edit)));
    TRY_ASSIGN(const size_t before, mount_count());
    TRY(scene.apply(edits_of(edit)));
    TRY_ASSIGN(const size_t after, mount_count());
    EXPECT(after == before);
    // Unless a flag lacks.
    edit.flags.no_exec = true;
    TRY(scene.apply(edits_of(edit)));
    TRY_ASSIGN(const std::string flags, mount_options(scene.in_root("/data")));
    EXPECT(has(flags, "noexec"));
    return {};
  });
}

TEST_CASE("A cover hides a directory; mounts, devices and files come beneath it, then its flags") {
  ApplyTest().run([](ApplyScene& scene) -> Result<void> {
    MountStep cover = cover_step("/usr/lib");
    cover.parameters = {{"mode", "0555"}};
    cover.flags = {.read_only = true, .no_suid = true, .no_dev = true, .no_exec = true};
    cover.origin = "test";
    TRY(scene.apply(edits_of(cover, host_file(scene.host + "/firmware.bin", "/usr/lib/below/file"),
                             device("/dev/null", "/usr/lib/null"), link_change("/usr/lib/link", "../target"),
                             write_change("/usr/lib/params", "ModifyDeviceFiles: 0\n"))));
    const std::string place = scene.in_root("/usr/lib");
    EXPECT(access((place + "/libc.so.6").c_str(), F_OK) != 0);
    TRY_ASSIGN(const std::string text, read_file(place + "/below/file"));
    EXPECT(text == "firmware");
    TRY_ASSIGN(const std::string params, read_file(place + "/params"));
    EXPECT(params == "ModifyDeviceFiles: 0\n");
    const UniqueFd null(open((place + "/null").c_str(), O_RDWR | O_CLOEXEC));
    EXPECT(null);
    EXPECT(std::filesystem::read_symlink(place + "/link") == "../target");
    EXPECT(open((place + "/new").c_str(), O_WRONLY | O_CREAT, 0600) < 0 && errno == EROFS);
    TRY_ASSIGN(const std::string options, mount_options(place));
    EXPECT(has(options, "ro") && has(options, "nosuid") && has(options, "nodev") && has(options, "noexec"));
    struct stat status {};
    EXPECT(stat(place.c_str(), &status) == 0 && (status.st_mode & 07777) == 0555);
    return {};
  });
}

TEST_CASE("Of two edits for one place the later one counts") {
  ApplyTest().run([](ApplyScene& scene) -> Result<void> {
    ContainerEdits edits =
        edits_of(device("/dev/null", "/dev/gpu"), host_file(scene.host + "/library/one", "/opt/file"));
    append(edits, edits_of(device("/dev/zero", "/dev/gpu"), host_file(scene.host + "/library/two", "/opt/file")));
    TRY_ASSIGN(const size_t before, mount_count());
    TRY(scene.apply(edits));
    TRY_ASSIGN(const size_t after, mount_count());
    EXPECT(after == before + 2);
    EXPECT(is_device(scene.in_root("/dev/gpu"), 1, 5));
    TRY_ASSIGN(const std::string text, read_file(scene.in_root("/opt/file")));
    EXPECT(text == "2");
    return {};
  });
}

TEST_CASE("On a read-only root what exists is mounted on, and what lacks is named") {
  ApplyTest().run([](ApplyScene& scene) -> Result<void> {
    TRY(add_mount_flags(scene.root.fd(), {.read_only = true}, false));
    TRY(scene.apply(edits_of(host_file(scene.host + "/firmware.bin", "/etc/hostname"))));
    TRY_ASSIGN(const std::string text, read_file(scene.in_root("/etc/hostname")));
    EXPECT(text == "firmware");
    EXPECT(fails_with(scene.apply(edits_of(host_file(scene.host + "/firmware.bin", "/etc/other"))),
                      {"/etc/other", "Read-only file system [mount-failed]\nhint: ", "let the container be writable"}));
    return {};
  });
}

TEST_CASE("Empty files that another driver's libraries were mounted on are removed") {
  const ApplyTest test;
  test.dir.write("root/usr/lib/libcuda.so.550.54.15", "");
  test.dir.write("root/usr/lib/libcuda.so.560.35.03", "");
  test.dir.write("root/usr/lib/libnvidia-old.so.550.54.15", "");
  test.dir.write("root/usr/lib/libnvidia-other.so.1", "");
  test.dir.write("root/usr/lib/libcuda.so.450.1", "a library of the image");
  test.dir.write("root/usr/lib/libcuda.soup.550.54.15", "");
  test.dir.write("root/etc/libcuda.so.550.54.15", "");
  std::filesystem::create_symlink("libcuda.so.550.54.15", test.dir / "root/usr/lib/libcuda.so.1");
  test.run([](ApplyScene& scene) -> Result<void> {
    TRY(scene.apply(edits_of(host_file(scene.host + "/libcuda.so.560.35.03", "/usr/lib/libcuda.so.560.35.03"))));
    const auto exists = [&](const std::string& name) {
      struct stat status {};
      return lstat(scene.in_root(name).c_str(), &status) == 0;
    };
    EXPECT(!exists("/usr/lib/libcuda.so.550.54.15"));
    EXPECT(!exists("/usr/lib/libnvidia-old.so.550.54.15"));
    EXPECT(exists("/usr/lib/libcuda.so.560.35.03"));
    EXPECT(exists("/usr/lib/libnvidia-other.so.1"));
    EXPECT(exists("/usr/lib/libcuda.so.450.1"));
    EXPECT(exists("/usr/lib/libcuda.soup.550.54.15"));
    EXPECT(exists("/usr/lib/libcuda.so.1"));
    EXPECT(exists("/etc/libcuda.so.550.54.15"));
    return {};
  });
}

TEST_CASE("A root that an earlier start gave a name of a library is searched for what else it left") {
  const ApplyTest test;
  test.dir.write("root/usr/lib/libcuda.so.550.54.15", "");
  std::filesystem::create_symlink("libcuda.so.550.54.15", test.dir / "root/usr/lib/libcuda.so.1");
  test.run([](ApplyScene& scene) -> Result<void> {
    ContainerEdits edits = edits_of(host_file(scene.host + "/libcuda.so.560.35.03", "/usr/lib/libcuda.so.560.35.03"),
                                    link_change("/usr/lib/libcuda.so.1", "libcuda.so.560.35.03"));
    edits.libraries.libraries = {{"libcuda.so.1", "/usr/lib/libcuda.so.1", false}};
    TRY(scene.apply(edits));
    EXPECT(!std::filesystem::exists(scene.in_root("/usr/lib/libcuda.so.550.54.15")));
    EXPECT(std::filesystem::read_symlink(scene.in_root("/usr/lib/libcuda.so.1")) == "libcuda.so.560.35.03");
    return {};
  });
}

TEST_CASE("Files and links replace what is there in one moment, and follow nothing") {
  const ApplyTest test;
  for (const char* name : {"file", "link"})
    std::filesystem::create_symlink(test.dir / "host/canary/data", test.dir / ("root/etc/" + std::string(name)));
  test.run([](ApplyScene& scene) -> Result<void> {
    TRY(scene.apply(edits_of(write_change("/etc/file", "new"), link_change("/etc/link", "elsewhere"),
                             link_change("/usr/lib/libc.so.6", "libother.so"))));
    TRY_ASSIGN(const std::string text, read_file(scene.in_root("/etc/file")));
    EXPECT(text == "new");
    EXPECT(!std::filesystem::is_symlink(scene.in_root("/etc/file")));
    EXPECT(std::filesystem::read_symlink(scene.in_root("/etc/link")) == "elsewhere");
    EXPECT(std::filesystem::read_symlink(scene.in_root("/usr/lib/libc.so.6")) == "libother.so");
    EXPECT(fails_with(scene.apply(edits_of(link_change("/usr/lib", "x"))), {"link /usr/lib: ", "hint: a directory"}));
    EXPECT(fails_with(scene.apply(edits_of(write_change("/usr/lib", "x"))), {"write /usr/lib", "hint: a directory"}));
    // A link that is right already is not touched: on an overlay that would be a copy.
    struct stat before {};
    struct stat after {};
    EXPECT(lstat(scene.in_root("/etc/link").c_str(), &before) == 0);
    TRY(scene.apply(edits_of(link_change("/etc/link", "elsewhere"))));
    EXPECT(lstat(scene.in_root("/etc/link").c_str(), &after) == 0 && before.st_ino == after.st_ino);
    for (const auto& [name, what] : snapshot(scene.path)) EXPECT(name.find("/.situla-") == std::string::npos);
    return {};
  });
}
