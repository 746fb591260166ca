// Does a real ld.so find what update_library_cache() promises? And is a root that is read-only good enough for it?
#include "hooks/inject/ldcache/library_cache.hpp"

#include <filesystem>

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "hooks/inject/edits/edits.hpp"
#include "hooks/inject/ldcache/ld_cache.hpp"
#include "tests/support/as_user.hpp"
#include "tests/support/elf_library.hpp"
#include "tests/support/memory_log.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/temp_dir.hpp"

namespace fs = std::filesystem;
using namespace situla;
using namespace situla::test;

namespace {

/// A root with the host's programs and libraries, read-only, and an /etc, /opt and /proc of its own.
Result<void> bind(const std::string& source, const std::string& target, const MountFlags& flags) {
  const UniqueFd from(open(source.c_str(), O_PATH | O_CLOEXEC)), to(open(target.c_str(), O_PATH | O_CLOEXEC));
  if (!from || !to) return fail_errno(errno, "open " + source + " or " + target);
  return bind_at(to.get(), from.get(), true, flags, target);
}

struct Scene {
  Scene() {
    for (const std::string name : {"root/usr", "root/proc", "root/etc", "root/opt/first", "root/tmp"})
      fs::create_directories(base / name);
    for (const std::string name : {"bin", "lib", "lib32", "lib64", "sbin"})
      if (fs::is_symlink("/" + name)) fs::copy_symlink("/" + name, base / ("root/" + name));
    fs::copy_file("/etc/ld.so.cache", base / "root/etc/ld.so.cache");
    base.write("root/opt/libsitula-test.so.550.1", elf_library("libsitula-test.so.1"));
    base.write("root/opt/libsitula-other.so.1", elf_library("libsitula-other.so.1"));
    base.write("root/opt/first/libsitula-other.so.1", elf_library("libsitula-other.so.1"));
    for (const auto& entry : fs::recursive_directory_iterator(base.path()))
      if (!entry.is_symlink()) give_to_user(entry.path().string());
    give_to_user(base.path());
  }

  [[nodiscard]] std::string root() const { return base / "root"; }
  static LibraryCacheEdit edit() {
    LibraryCacheEdit edit;
    edit.directories = {"/opt"};
    edit.preferred = {"/opt/first"};
    return edit;
  }

  TempDir base;
};

/// Which file ld.so takes for the SONAME, in that root. For the last act of a child.
Result<std::string> loaded_as(const std::string& root, const std::string& soname) {
  if (chroot(root.c_str()) != 0 || chdir("/") != 0) return fail_errno(errno, "enter " + root);
  const std::string command = "LD_PRELOAD=" + soname + " cat /proc/self/maps 2>&1 | grep -m1 situla";
  FILE* pipe = popen(command.c_str(), "re");
  if (pipe == nullptr) return fail_errno(errno, "run " + command);
  std::string text(4096, '\0');
  text.resize(fread(text.data(), 1, text.size(), pipe));
  pclose(pipe);
  return text.substr(std::min(text.find(" /") + 1, text.size()));
}

Result<void> prepare(const Scene& scene) {
  TRY(bind("/usr", scene.base / "root/usr", {.read_only = true}));
  TRY(bind("/proc", scene.base / "root/proc", {}));
  return bind(scene.root(), scene.root(), {});
}

}  // namespace

TEST_CASE("ld.so finds the host's libraries, and the preferred ones first", "[ldcache]") {
  if (!fs::is_symlink("/lib")) SITULA_SKIP("this system's /lib is no link to usr/lib");
  const Scene scene;
  const std::pair<std::string, std::string> expected[] = {
      {"libsitula-test.so.1", "/opt/libsitula-test.so.550.1\n"},
      {"libsitula-other.so.1", "/opt/first/libsitula-other.so.1\n"}};
  for (const auto& [soname, path] : expected) {
    CHECK(in_user_namespace(
              [&, &soname = soname, &path = path]() -> Result<void> {
                TRY(prepare(scene));
                TRY_ASSIGN(const RootDir root, RootDir::open(scene.root()));
                MemoryLog log;
                TRY(update_library_cache(Scene::edit(), root, log));
                EXPECT(log.messages.empty());
                TRY_ASSIGN(const std::string loaded, loaded_as(scene.root(), soname));
                return loaded == path ? Result<void>() : fail(ErrorKind::failure, "loaded: " + loaded);
              },
              true) == "");
  }
  CHECK(fs::read_symlink(scene.root() + "/opt/libsitula-test.so.1") == "libsitula-test.so.550.1");
}

TEST_CASE("a read-only root gets a cache that is mounted over its own", "[ldcache]") {
  if (!fs::is_symlink("/lib")) SITULA_SKIP("this system's /lib is no link to usr/lib");
  for (const MountApi api : {MountApi::automatic, MountApi::classic}) {
    const Scene scene;
    const std::string before = slurp(scene.root() + "/etc/ld.so.cache");
    CHECK(in_user_namespace(
              [&]() -> Result<void> {
                set_mount_api(api);
                TRY(prepare(scene));
                {
                  TRY_ASSIGN(const RootDir top, RootDir::open(scene.root()));
                  TRY(add_mount_flags(top.fd(), {.read_only = true}, false));
                }
                TRY_ASSIGN(const RootDir root, RootDir::open(scene.root()));
                MemoryLog log;
                TRY(update_library_cache(Scene::edit(), root, log));
                for (const auto& message : log.messages)
                  if (message.level == LogLevel::warning) return fail(ErrorKind::failure, message.text);
                // Nothing of the memory file system is left over but the file.
                EXPECT(fs::is_empty(scene.root() + "/tmp"));
                struct stat status {};
                EXPECT(stat((scene.root() + "/etc/ld.so.cache").c_str(), &status) == 0);
                EXPECT((status.st_mode & 07777) == 0644);
                TRY_ASSIGN(const std::string loaded, loaded_as(scene.root(), "libsitula-test.so.1"));
                return loaded == "/opt/libsitula-test.so.550.1\n" ? Result<void>()
                                                                  : fail(ErrorKind::failure, "loaded: " + loaded);
              },
              true) == "");
    CHECK(slurp(scene.root() + "/etc/ld.so.cache") == before);
    CHECK_FALSE(fs::exists(scene.root() + "/etc/ld.so.conf.d"));
  }
}

TEST_CASE("a read-only root without a cache is a warning", "[ldcache]") {
  const Scene scene;
  fs::remove(scene.root() + "/etc/ld.so.cache");
  CHECK(in_user_namespace(
            [&]() -> Result<void> {
              TRY(bind(scene.root(), scene.root(), {}));
              TRY_ASSIGN(const RootDir root, RootDir::open(scene.root()));
              TRY(add_mount_flags(root.fd(), {.read_only = true}, false));
              MemoryLog log;
              TRY(update_library_cache(Scene::edit(), root, log));
              EXPECT(log.count(LogLevel::warning, "programs may not find libraries of the host") == 1);
              return {};
            },
            true) == "");
}
