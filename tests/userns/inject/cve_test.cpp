// What earlier container toolkits were taught the hard way (GPU.md 9), each by its number: the same image, our code.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "common/sys/mount/mount_api.hpp"
#include "hooks/inject/ldcache/forward_compat.hpp"
#include "hooks/mount/place.hpp"
#include "tests/support/elf_library.hpp"
#include "tests/userns/inject/race.hpp"

using namespace situla;
using namespace situla::test;

namespace fs = std::filesystem;

namespace {

const std::string kCudaLibrary = "libcuda.so.560.35.03";

ProgramEdit hook(const std::string& path, const std::string& script) {
  ProgramEdit edit;
  edit.path = path;
  edit.arguments = {"hook", "-c", script};
  edit.origin = "/etc/cdi/test.yaml";
  return edit;
}

ContainerEdits library_cache(const std::string& directory) {
  ContainerEdits edits;
  edits.libraries.directories = {directory};
  return edits;
}

/// Where a hook tells what it saw.
std::string last_info(const ApplyScene& scene) {
  return scene.log.messages.empty() ? "" : scene.log.messages.back().text;
}

}  // namespace

TEST_CASE("CVE-2024-0132: a library of the image that is a link to the host is not mounted from there") {
  const ApplyTest test;
  fs::create_directories(test.dir / "root/usr/local/cuda/compat");
  const auto link = [&](const std::string& target, const char* name) {
    fs::create_symlink(target, test.dir / ("root/usr/local/cuda/compat/" + std::string(name)));
  };
  link(test.dir / "host/canary/data", "libcuda.so.1");
  link(test.dir / "host/canary", "libcuda.so.2");
  link("../../../../../host/canary/data", "libcuda.so.3");
  link("/", "libcuda.so.4");
  test.run([](ApplyScene& scene) -> Result<void> {
    const std::string compat = scene.in_root("/usr/local/cuda/compat/libcuda.so.");
    for (const char* name : {"1", "2", "3"})
      EXPECT(fails_with(scene.apply(edits_of(host_file(compat + name, "/usr/lib/libcuda.so.1", SourceType::any))),
                        {"No such file"}));
    // Inside there is a directory, which is no library.
    EXPECT(fails_with(scene.apply(edits_of(host_file(compat + "4", "/usr/lib/libcuda.so.1"))),
                      {"has to be a regular file and is a directory"}));
    return {};
  });
}

TEST_CASE("CVE-2024-0132: forward compatibility does not look at libraries outside of the root") {
  const ApplyTest test;
  test.dir.write("host/canary/libcuda.so.999.1", elf_library("libcuda.so.1"));
  test.dir.write("root/opt/cuda/compat/libcuda.so.999.1", elf_library("libcuda.so.1"));
  for (const char* name : {"file", "tree"}) fs::create_directories(test.dir / ("root/opt/" + std::string(name)));
  fs::create_symlink(test.dir / "host/canary/libcuda.so.999.1", test.dir / "root/opt/file/libcuda.so.999.1");
  fs::create_directory_symlink(test.dir / "host/canary", test.dir / "root/opt/absolute");
  fs::create_directory_symlink("../../host/canary", test.dir / "root/opt/relative");
  fs::create_directory_symlink("/opt/cuda/compat", test.dir / "root/opt/inside");
  fs::create_directory(test.dir / "root/opt/tree/libcuda.so.999.1");
  test.run([](ApplyScene& scene) -> Result<void> {
    for (const char* directory : {"/opt/file", "/opt/absolute", "/opt/relative", "/opt/tree", "/opt"}) {
      const auto chosen = forward_compat_directory(scene.root, directory, "560.35.03", "12.6");
      EXPECT(!chosen || !*chosen);
    }
    TRY_ASSIGN(const auto chosen, forward_compat_directory(scene.root, "/opt/inside", "560.35.03", "12.6"));
    EXPECT(chosen && *chosen == "/opt/cuda/compat");
    return {};
  });
}

TEST_CASE("CVE-2024-0133: an image makes no empty files on the host") {
  const ApplyTest test;
  fs::create_directory_symlink(test.dir / "host/canary", test.dir / "root/usr/lib64");
  fs::create_symlink(test.dir / "host/canary/new", test.dir / "root/usr/lib/libnvidia-ml.so.1");
  fs::create_directory_symlink("../../host/canary/directory", test.dir / "root/usr/lib32");
  // run() compares the host's files.
  test.run([](ApplyScene& scene) -> Result<void> {
    TRY(scene.apply(edits_of(host_file(scene.host + "/" + kCudaLibrary, "/usr/lib64/new.so.1"),
                             host_file(scene.host + "/" + kCudaLibrary, "/usr/lib/libnvidia-ml.so.1"),
                             host_file(scene.host + "/library", "/usr/lib32/tree", SourceType::directory),
                             device("/dev/null", "/usr/lib32/null"))));
    EXPECT(is_device(scene.in_root("/usr/lib32/null"), 1, 3) || scene.root.exists("/usr/lib32/null"));
    return {};
  });
}

TEST_CASE("CVE-2024-0134: files that an injection writes do not follow the image's links") {
  const ApplyTest test;
  fs::create_directories(test.dir / "root/etc/ld.so.conf.d");
  fs::create_symlink(test.dir / "host/canary/data", test.dir / "root/etc/ld.so.conf.d/00-driver.conf");
  fs::create_directory_symlink(test.dir / "host/canary", test.dir / "root/etc/vulkan");
  test.run([](ApplyScene& scene) -> Result<void> {
    TRY(scene.apply(edits_of(write_change("/etc/ld.so.conf.d/00-driver.conf", "/usr/lib64\n"),
                             write_change("/etc/vulkan/icd.json", "{}"), link_change("/etc/vulkan/data", "x"))));
    TRY_ASSIGN(const std::string text, read_file(scene.in_root("/etc/ld.so.conf.d/00-driver.conf")));
    EXPECT(text == "/usr/lib64\n");
    return {};
  });
}

TEST_CASE("CVE-2024-0135: no program of the image is run on the host's side") {
  const ApplyTest test;
  fs::create_symlink(test.dir / "root/usr/bin/sh", test.dir / "host/link-to-image");
  test.dir.write("root/usr/bin/sh", "#!/bin/sh\ntouch " + test.dir.path() + "/host/canary/run\n");
  REQUIRE(chmod((test.dir / "root/usr/bin/sh").c_str(), 0755) == 0);
  test.run([](ApplyScene& scene) -> Result<void> {
    for (const std::string& path :
         {scene.in_root("/usr/bin/sh"), scene.host + "/link-to-image", scene.host + "/../host/../root/usr/bin/sh"})
      EXPECT(fails_with(scene.apply(edits_of(hook(path, "true"))),
                        {"it lies in the container's root, and programs of an image are not run on the host"}));
    // Nor is one found there that is missing on the host: PATH knows the host only.
    TRY(scene.apply(edits_of(hook("/bin/sh", "echo $PATH"))));
    EXPECT(last_info(scene).find(scene.path) == std::string::npos);
    return {};
  });
}

TEST_CASE("CVE-2024-0135: the image's ldconfig is not run, and no other") {
  const ApplyTest test;
  test.dir.write("root/opt/libsitula.so.1", elf_library("libsitula.so.1"));
  for (const char* name : {"root/sbin/ldconfig", "root/usr/sbin/ldconfig", "root/sbin/ldconfig.real"}) {
    test.dir.write(name, "#!/bin/sh\ntouch " + test.dir.path() + "/host/canary/run\n");
    REQUIRE(chmod((test.dir / name).c_str(), 0755) == 0);
  }
  test.run([](ApplyScene& scene) -> Result<void> {
    TRY(scene.apply(library_cache("/opt")));
    TRY_ASSIGN(const std::string cache, read_file(scene.in_root("/etc/ld.so.cache")));
    EXPECT(cache.find("/opt/libsitula.so.1") != std::string::npos);
    return {};
  });
}

TEST_CASE("CVE-2024-0136: a container gets the devices that were asked for, and cannot change their nodes") {
  const ApplyTest test;
  fs::create_symlink("/dev/zero", test.dir / "root/dev/nvidia0");
  test.run([](ApplyScene& scene) -> Result<void> {
    // A source beneath the root is the image's file, whatever it is called.
    EXPECT(!scene.apply(edits_of(device(scene.in_root("/dev/nvidia0"), "/dev/gpu"))));
    MountStep other = device("/dev/zero", "/dev/gpu");
    other.number = DeviceNumber{'c', 195, 0};
    EXPECT(!scene.apply(edits_of(other)));
    TRY(scene.apply(edits_of(device("/dev/null", "/dev/gpu"))));
    TRY_ASSIGN(const std::string options, mount_options(scene.in_root("/dev/gpu")));
    EXPECT(options.starts_with("ro,"));
    EXPECT(chmod(scene.in_root("/dev/gpu").c_str(), 0777) != 0);
    EXPECT(chown(scene.in_root("/dev/gpu").c_str(), geteuid(), getegid()) != 0);
    return {};
  });
}

TEST_CASE("CVE-2024-0137: what runs for an image has no descriptors and no privileges of the launcher's") {
  ApplyTest().run([](ApplyScene& scene) -> Result<void> {
    const UniqueFd kept(open("/", O_RDONLY | O_DIRECTORY));  // not close-on-exec, as other libraries open files
    TRY(scene.apply(edits_of(hook("/bin/sh", "ls /proc/self/fd | tr '\\n' ' '"))));
    EXPECT(last_info(scene) == "/bin/sh: 0 1 2 3");
    return {};
  });
}

TEST_CASE("CVE-2025-23359: a source that is exchanged after it was looked at is not what is mounted") {
  const ApplyTest test;
  test.dir.write("root/usr/lib/libcuda.so.1", "inside");
  test.run([](ApplyScene& scene) -> Result<void> {
    const ApplyTarget target{scene.root, scene.path};
    const std::string path = scene.in_root("/usr/lib/libcuda.so.1");
    const MountStep step = host_file(path, "/etc/library");
    TRY_ASSIGN(const MountSource source, open_source(step, target));
    TRY(check_source(source, step, scene.log));
    fs::rename(path, path + ".old");
    fs::create_symlink(scene.host + "/canary/data", path);
    TRY(place_bind(source, step, target));
    TRY_ASSIGN(const std::string text, read_file(scene.in_root("/etc/library")));
    EXPECT(text == "inside");
    fs::remove(path);
    fs::rename(path + ".old", path);
    return {};
  });
}

TEST_CASE("CVE-2025-23266: variables of the image do not reach programs of the host") {
  const ApplyTest test;
  test.dir.write("root/proc/self/cwd/evil.so", "");
  test.dir.write("root/evil.so", "");
  test.run([](ApplyScene& scene) -> Result<void> {
    // As an image has it, in the launcher's own environment and in that of the edits.
    (void)setenv("LD_LIBRARY_PATH", scene.path.c_str(), 1);
    (void)setenv("GCONV_PATH", scene.path.c_str(), 1);
    ContainerEdits edits = edits_of(hook("/bin/sh", "tr '\\0' ' ' </proc/self/environ; pwd"));
    edits.environment.set("LD_PRELOAD", "./evil.so");
    edits.environment.set("BASH_ENV", "/evil.so");
    TRY(scene.apply(edits));
    const std::string said = last_info(scene);
    EXPECT(said == "/bin/sh: PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin /");
    return {};
  });
}

TEST_CASE("CVE-2025-23267: the library cache and its configuration do not follow the image's links") {
  const ApplyTest test;
  test.dir.write("root/opt/libsitula.so.1.2", elf_library("libsitula.so.1"));
  fs::create_symlink(test.dir / "host/canary/data", test.dir / "root/etc/ld.so.cache");
  fs::create_symlink("../../host/canary/new", test.dir / "root/etc/ld.so.conf");
  fs::create_directory_symlink(test.dir / "host/canary/directory", test.dir / "root/etc/ld.so.conf.d");
  fs::create_symlink(test.dir / "host/canary/data", test.dir / "root/opt/libsitula.so.1");
  fs::create_directory_symlink(test.dir / "host/canary", test.dir / "root/opt/out");
  test.dir.write("host/canary/libout.so.1.2", elf_library("libout.so.1"));
  test.run([](ApplyScene& scene) -> Result<void> {
    for (const char* directory : {"/opt", "/opt/out"}) TRY(scene.apply(library_cache(directory)));
    EXPECT(!fs::is_symlink(scene.in_root("/etc/ld.so.cache")));
    TRY_ASSIGN(const std::string cache, read_file(scene.in_root("/etc/ld.so.cache")));
    EXPECT(cache.find("/opt/libsitula.so.1") != std::string::npos && cache.find("libout") == std::string::npos);
    EXPECT(fs::read_symlink(scene.in_root("/opt/libsitula.so.1")) == "libsitula.so.1.2");
    return {};
  });
}

TEST_CASE("CVE-2026-24260: names that change between two looks lead nowhere") {
  const ApplyTest test;
  CHECK(test.run_once([](ApplyScene& scene) -> Result<void> {
    TRY_ASSIGN(const RaceReport report, race(scene, std::chrono::milliseconds(1000)));
    EXPECT(report.noticed + report.refused > 0);
    return {};
  }) == "");
}

TEST_CASE("CVE-2025-31133: what the image puts in a device's place does not become the source of a mount") {
  const ApplyTest test;
  fs::create_symlink(test.dir / "host/canary/data", test.dir / "root/dev/null");
  test.run([](ApplyScene& scene) -> Result<void> {
    // The source is the host's, and has to have the number; the target is resolved inside.
    MountStep null = device("/dev/null", "/dev/null");
    null.number = DeviceNumber{'c', 1, 3};
    TRY(scene.apply(edits_of(null)));
    TRY_ASSIGN(const UniqueFd inside, scene.root.resolve("/dev/null"));
    struct stat status {};
    EXPECT(fstat(inside.get(), &status) == 0 && S_ISCHR(status.st_mode));
    return {};
  });
}

TEST_CASE("CVE-2025-52565: a target that is renamed while it is mounted on is noticed") {
  const ApplyTest test;
  fs::create_directories(test.dir / "root/usr/spare");
  test.dir.write("root/usr/lib/console", "");
  test.dir.write("root/usr/spare/console", "");
  CHECK(test.run_once([](ApplyScene& scene) -> Result<void> {
    const ApplyTarget target{scene.root, scene.path};
    const MountStep step = host_file(scene.host + "/firmware.bin", "/usr/lib/console");
    TRY_ASSIGN(const MountSource source, open_source(step, target));
    unsigned noticed = 0;
    TRY_ASSIGN(Child swapper, fork_child());
    if (!swapper)
      for (;;) (void)exchange_names(scene.in_root("/usr/lib"), scene.in_root("/usr/spare"));
    for (int round = 0; round < 20000 && noticed == 0; ++round) {
      for (const char* name : {"/usr/lib/console", "/usr/spare/console"}) (void)unmount(scene.in_root(name), true);
      const auto done = place_bind(source, step, target);
      if (!done && done.error().text().find("it is another file now") != std::string::npos) ++noticed;
    }
    EXPECT(noticed == 1);
    return {};
  }) == "");
}

TEST_CASE("CVE-2025-52881: what looks like /proc and is not gets no mounts") {
  const ApplyTest test;
  fs::create_directories(test.dir / "root/fake/driver/nvidia");
  fs::create_directory_symlink("/fake", test.dir / "root/proc");
  test.run([](ApplyScene& scene) -> Result<void> {
    const MountStep cover = cover_step("/proc/driver/nvidia");
    EXPECT(fails_with(scene.apply(edits_of(cover)), {"/proc is a link in this image"}));
    return {};
  });
}
