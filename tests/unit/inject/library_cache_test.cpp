// Does the dynamic linker of any kind of image find the host's libraries? Roots that can be written; the others are in
// tests/userns/inject.
#include "hooks/inject/ldcache/library_cache.hpp"

#include <algorithm>
#include <filesystem>

#include <fcntl.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>

#include "hooks/inject/edits/changes.hpp"
#include "tests/support/memory_log.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/unit/inject/ldcache_support.hpp"

namespace fs = std::filesystem;
using namespace situla;
using namespace situla::test;

namespace {

LibraryCacheEdit with(std::vector<CachedLibrary> libraries, std::vector<std::string> directories = {}) {
  LibraryCacheEdit edit;
  edit.libraries = std::move(libraries);
  edit.directories = std::move(directories);
  return edit;
}

struct Image {
  TempDir root;
  MemoryLog log;

  void add(const std::string& path, const ElfLibrary& library) const { root.write(path, elf_library(library)); }
  void add(const std::string& path, const std::string& soname) const { root.write(path, elf_library(soname)); }
  /// ldconfig has run at the end of the image's making; what comes later is newer by a minute.
  void finish() const {
    run_ldconfig(root.path());
    fs::last_write_time(root / "etc/ld.so.cache", fs::file_time_type::clock::now() - std::chrono::minutes(1));
    age("usr/local/lib");
  }
  void age(const std::string& directory) const {
    if (fs::exists(root / directory))
      fs::last_write_time(root / directory, fs::file_time_type::clock::now() - std::chrono::minutes(2));
  }
  void update(const LibraryCacheEdit& edit) {
    const auto opened = RootDir::open(root.path());
    REQUIRE(opened);
    const auto done = update_library_cache(edit, *opened, log);
    INFO((done ? "" : done.error().text()));
    REQUIRE(done);
  }
  [[nodiscard]] std::vector<std::string> cache() const { return ldconfig_prints(root / "etc/ld.so.cache"); }
  /// Where ld.so would find it; the first of the cache.
  [[nodiscard]] std::string found(const std::string& soname) const {
    for (const std::string& entry : cache())
      if (entry.starts_with(soname + " ")) return entry.substr(soname.size() + 1);
    return "";
  }
  [[nodiscard]] std::string text(const std::string& path) const {
    return fs::exists(root / path) ? slurp(root / path) : "";
  }
};

const std::string kDebianLibs = "/usr/lib/x86_64-linux-gnu";
const LibraryCacheEdit kDriver =
    with({{"libcuda.so.1", kDebianLibs + "/libcuda.so.1"}, {"libnvidia-ml.so.1", kDebianLibs + "/libnvidia-ml.so.1"}});

/// As Debian has it.
void make_debian(const Image& image) {
  image.root.write("etc/debian_version", "12.5\n");
  image.root.write("etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n");
  image.root.write("etc/ld.so.conf.d/libc.conf", "# libc default configuration\n/usr/local/lib\n");
  image.root.write("etc/ld.so.conf.d/x86_64-linux-gnu.conf", "/usr/local/lib/x86_64-linux-gnu\n" + kDebianLibs + "\n");
  image.add("usr/lib/x86_64-linux-gnu/libz.so.1.2", "libz.so.1");
  image.root.write("lib64/ld-linux-x86-64.so.2", "");
}

}  // namespace

TEST_CASE("Debian: the host's libraries join the image's", "[ldcache]") {
  Image image;
  make_debian(image);
  image.add("usr/lib/x86_64-linux-gnu/libcuda.so.1", "libcuda.so.1");
  image.add("usr/local/lib/libcuda.so.1", "libcuda.so.1");
  image.finish();
  CHECK(image.found("libcuda.so.1") == "/usr/local/lib/libcuda.so.1");
  image.update(kDriver);
  CHECK(image.cache() == std::vector<std::string>{"libz.so.1 " + kDebianLibs + "/libz.so.1",
                                                  "libnvidia-ml.so.1 " + kDebianLibs + "/libnvidia-ml.so.1",
                                                  "libcuda.so.1 " + kDebianLibs + "/libcuda.so.1"});
  CHECK(image.log.messages.empty());
  // ldconfig knows the directory without us.
  CHECK_FALSE(fs::exists(image.root / "etc/ld.so.conf.d/00-situla.conf"));
  CHECK((fs::status(image.root / "etc/ld.so.cache").permissions() & fs::perms::others_read) != fs::perms::none);
  SECTION("again, it is the same") {
    const std::string before = image.text("etc/ld.so.cache");
    image.update(kDriver);
    CHECK(image.text("etc/ld.so.cache") == before);
  }
}

TEST_CASE("EL: directories that its ldconfig does not know are told to it", "[ldcache]") {
  Image image;
  image.root.write("etc/redhat-release", "Rocky Linux release 9\n");
  image.root.write("etc/ld.so.conf", "include ld.so.conf.d/*.conf\n");
  image.root.write("etc/ld.so.conf.d/bind.conf", "/usr/lib64/bind\n");
  image.add("usr/lib64/libz.so.1", "libz.so.1");
  image.add("opt/driver/libcuda.so.1", "libcuda.so.1");
  image.add("opt/driver/lib32/libcuda.so.1", ElfLibrary{.soname = "libcuda.so.1", .is_32bit = true});
  output_of("ln -s usr/lib64 " + image.root / "lib64");
  image.finish();
  image.update(with({{"libcuda.so.1", "/opt/driver/libcuda.so.1"},
                     {"libcuda.so.1", "/opt/driver/lib32/libcuda.so.1", true},
                     {"libcudadebugger.so.1", "/usr/lib64/libcudadebugger.so.1"}}));
  CHECK(image.found("libcuda.so.1") == "/opt/driver/libcuda.so.1");
  CHECK(output_of("/sbin/ldconfig -p -C " + image.root / "etc/ld.so.cache").find("(libc6) => /opt/driver/lib32/") !=
        std::string::npos);
  CHECK(image.text("etc/ld.so.conf.d/00-situla.conf").ends_with("\n/opt/driver\n/opt/driver/lib32\n"));
  run_ldconfig(image.root.path());
  CHECK(image.found("libcuda.so.1") == "/opt/driver/libcuda.so.1");
}

TEST_CASE("CUDA's forward compatibility comes first, and goes when it is not wanted any more", "[ldcache]") {
  Image image;
  make_debian(image);
  for (const std::string directory : {"usr/lib/x86_64-linux-gnu", "usr/local/cuda-13/compat"}) {
    image.add(directory + "/libcuda.so.1", "libcuda.so.1");
  }
  image.add("usr/local/cuda-13/compat/libnvidia-nvvm.so.4", "libnvidia-nvvm.so.4");
  image.finish();
  LibraryCacheEdit edit = kDriver;
  edit.preferred = {"/usr/local/cuda-13/compat"};
  image.update(edit);
  CHECK(image.found("libcuda.so.1") == "/usr/local/cuda-13/compat/libcuda.so.1");
  CHECK(image.found("libnvidia-nvvm.so.4") == "/usr/local/cuda-13/compat/libnvidia-nvvm.so.4");
  run_ldconfig(image.root.path());
  CHECK(image.found("libcuda.so.1") == "/usr/local/cuda-13/compat/libcuda.so.1");
  // The same container on a node with a newer driver.
  image.update(kDriver);
  CHECK(image.found("libcuda.so.1") == kDebianLibs + "/libcuda.so.1");
  CHECK(image.found("libnvidia-nvvm.so.4").empty());
  CHECK_FALSE(fs::exists(image.root / "etc/ld.so.conf.d/00-situla-compat.conf"));
}

TEST_CASE("what one hook of a start makes the linker find, the next one does not undo", "[ldcache]") {
  Image image;
  make_debian(image);
  for (const char* directory : {"usr/lib/x86_64-linux-gnu", "usr/local/cuda-13/compat"})
    image.add(std::string(directory) + "/libcuda.so.1", "libcuda.so.1");
  image.finish();
  const auto root = RootDir::open(image.root.path());
  REQUIRE(root);
  Changes changes({*root, image.root.path()}, false, false, image.log);
  ContainerEdits driver, fabric;
  driver.in_host_directories = fabric.in_host_directories = true;
  driver.libraries = kDriver;
  driver.libraries.preferred = {"/usr/local/cuda-13/compat"};
  fabric.libraries = with({{"libcxi.so.1", "/opt/cxi/libcxi.so.1"}});
  REQUIRE(changes.make(driver));
  REQUIRE(changes.make(fabric));
  CHECK(image.found("libcuda.so.1") == "/usr/local/cuda-13/compat/libcuda.so.1");
  CHECK(image.found("libcxi.so.1") == "/opt/cxi/libcxi.so.1");
  CHECK(fs::exists(image.root / "etc/ld.so.conf.d/00-situla-compat.conf"));
}

TEST_CASE("libraries of whole directories are found, by links with their SONAMEs", "[ldcache]") {
  Image image;
  make_debian(image);
  image.finish();
  image.add("opt/d/libcuda.so.550.54.14", "libcuda.so.1");
  image.add("opt/d/libnvidia-ml.so.470.1", "libnvidia-ml.so.1");
  image.add("opt/d/libnvidia-ml.so.1000.2", "libnvidia-ml.so.1");
  image.add("opt/d/libplain.so", "");
  image.add("opt/d/libgone.so.2", "libgone.so.1");
  image.add("opt/d/libkept.so.2", "libkept.so.1");
  image.root.write("opt/d/libtext.so", "GROUP ( libcuda.so.1 )");
  image.root.write("opt/d/libkept.so.1", "");
  fs::create_symlink("libcuda.so.1", image.root / "opt/d/libcuda.so");
  image.add("opt/d/libplus.so.1.5", "libplus.so.1");
  fs::create_symlink("libplus.so.1.5", image.root / "opt/d/libplus.so");
  fs::create_symlink("libplus.so.1.5", image.root / "opt/d/libminus.so");
  fs::create_symlink("libgone.so.1.470", image.root / "opt/d/libgone.so.1");
  REQUIRE(mkfifo((image.root / "opt/d/libfifo.so.1").c_str(), 0666) == 0);
  image.update(with({}, {"/opt/d", "/opt/missing"}));
  CHECK(image.found("libcuda.so.1") == "/opt/d/libcuda.so.1");
  CHECK(fs::read_symlink(image.root / "opt/d/libcuda.so.1") == "libcuda.so.550.54.14");
  CHECK(fs::read_symlink(image.root / "opt/d/libnvidia-ml.so.1") == "libnvidia-ml.so.1000.2");
  CHECK(fs::read_symlink(image.root / "opt/d/libgone.so.1") == "libgone.so.2");
  CHECK(image.found("libkept.so.1") == "/opt/d/libkept.so.2");  // what is no link is not ours to replace
  CHECK(image.found("libplain.so") == "/opt/d/libplain.so");
  CHECK(image.found("libplus.so") == "/opt/d/libplus.so");
  CHECK(image.found("libminus.so").empty());
  CHECK(image.found("libz.so.1") == kDebianLibs + "/libz.so.1");
}

TEST_CASE("of a directory that the image knows only what is new comes before its other libraries", "[ldcache]") {
  Image image;
  make_debian(image);
  image.add("usr/local/lib/libz.so.1", "libz.so.1");
  image.add("usr/local/lib/libcuda.so.1", "libcuda.so.1");
  fs::create_symlink("libz.so.1.2", image.root / (kDebianLibs + "/libz.so"));
  image.finish();
  REQUIRE(image.found("libz.so.1") == "/usr/local/lib/libz.so.1");
  image.add(kDebianLibs + "/libcuda.so.550.54", "libcuda.so.1");
  image.update(with({}, {kDebianLibs}));
  CHECK(image.found("libz.so.1") == "/usr/local/lib/libz.so.1");
  CHECK(image.found("libcuda.so.1") == kDebianLibs + "/libcuda.so.1");
}

TEST_CASE("libraries that were added after the image's ldconfig are found, as with enroot", "[ldcache]") {
  Image image;
  make_debian(image);
  image.add("usr/local/lib/libold.so.1", "libold.so.1");
  image.finish();
  REQUIRE(image.found("libold.so.1") == "/usr/local/lib/libold.so.1");
  fs::remove(image.root / "usr/local/lib/libold.so.1");
  image.add("usr/local/lib/libnew.so.3.1", "libnew.so.3");
  image.add("usr/local/lib/libz.so.1", "libz.so.1");
  image.update(kDriver);
  CHECK(image.found("libold.so.1").empty());
  CHECK(image.found("libnew.so.3") == "/usr/local/lib/libnew.so.3.1");
  CHECK(image.found("libz.so.1") == "/usr/local/lib/libz.so.1");  // configured before the distribution's own
  CHECK(image.found("libcuda.so.1") == kDebianLibs + "/libcuda.so.1");
}

TEST_CASE("images without a cache, or with one that is none, get one", "[ldcache]") {
  Image image;
  make_debian(image);
  image.add("usr/local/lib/libmine.so.1", "libmine.so.1");
  SECTION("none") {
    image.update(kDriver);
    CHECK(image.log.messages.empty());
  }
  SECTION("garbage") {
    image.root.write("etc/ld.so.cache", "no cache at all");
    image.update(kDriver);
    REQUIRE(image.log.messages.size() == 1);
  }
  SECTION("too large") {
    image.root.write("etc/ld.so.cache", "");
    fs::resize_file(image.root / "etc/ld.so.cache", uint64_t{17} << 20U);
    image.update(kDriver);
  }
  SECTION("a fifo") {
    fs::create_directories(image.root / "etc");
    REQUIRE(mkfifo((image.root / "etc/ld.so.cache").c_str(), 0666) == 0);
    image.update(kDriver);
  }
  SECTION("a link out of the image") {
    const TempDir outside;
    outside.write("cache", "precious");
    fs::create_symlink(outside / "cache", image.root / "etc/ld.so.cache");
    image.update(kDriver);
    CHECK(slurp(outside / "cache") == "precious");
    CHECK_FALSE(fs::is_symlink(image.root / "etc/ld.so.cache"));
  }
  CHECK(image.found("libcuda.so.1") == kDebianLibs + "/libcuda.so.1");
  CHECK(image.found("libmine.so.1") == "/usr/local/lib/libmine.so.1");
  CHECK(image.found("libz.so.1") == kDebianLibs + "/libz.so.1.2");
}

TEST_CASE("a directory in the place of the cache is a warning, not the end", "[ldcache]") {
  Image image;
  make_debian(image);
  fs::create_directories(image.root / "etc/ld.so.cache/x");
  image.update(kDriver);
  CHECK(image.log.count(LogLevel::warning, "programs may not find libraries of the host") == 1);
}

TEST_CASE("distroless: where there is no /etc there is one afterwards", "[ldcache]") {
  Image image;
  image.root.write("lib64/ld-linux-x86-64.so.2", "");
  image.update(kDriver);
  CHECK(image.found("libnvidia-ml.so.1") == kDebianLibs + "/libnvidia-ml.so.1");
  CHECK(image.text("etc/ld.so.conf") == "include /etc/ld.so.conf.d/*.conf\n");
  CHECK(image.text("etc/ld.so.conf.d/00-situla.conf").ends_with("\n" + kDebianLibs + "\n"));
}

TEST_CASE("Alpine: musl's path gets the directories, and no cache is made", "[ldcache]") {
  Image image;
  image.root.write("lib/ld-musl-x86_64.so.1", "");
  image.update(with({{"libcuda.so.1", "/usr/lib64/libcuda.so.1"}, {"liba.so", "/usr/lib32/liba.so", true}}));
  const std::string expected = "/lib\n/usr/local/lib\n/usr/lib\n/usr/lib64\n";
  CHECK(image.text("etc/ld-musl-x86_64.path") == expected);
  CHECK_FALSE(fs::exists(image.root / "etc/ld.so.cache"));
  SECTION("a path file of its own stays, with ours behind") {
    image.root.write("etc/ld-musl-x86_64.path", "/opt/lib:/usr/lib\n");
    image.update(with({{"libcuda.so.1", "/usr/lib64/libcuda.so.1"}, {"libc.so.1", "/usr/lib/libc.so.1"}}));
    CHECK(image.text("etc/ld-musl-x86_64.path") == "/opt/lib\n/usr/lib\n/usr/lib64\n");
  }
}

TEST_CASE("configurations that include themselves or everything come to an end", "[ldcache]") {
  Image image;
  make_debian(image);
  image.root.write("etc/ld.so.conf.d/a.conf", "include /etc/ld.so.conf\ninclude *.conf\ninclude a.conf\nhwcap 1 x\n");
  image.root.write("etc/ld.so.conf.d/b.conf", std::string(1 << 20, '/'));
  REQUIRE(mkfifo((image.root / "etc/ld.so.conf.d/c.conf").c_str(), 0666) == 0);
  image.update(kDriver);
  CHECK(image.found("libcuda.so.1") == kDebianLibs + "/libcuda.so.1");
}

TEST_CASE("nothing to find changes nothing", "[ldcache]") {
  Image image;
  image.update({});
  CHECK(fs::is_empty(image.root.path()));
}
