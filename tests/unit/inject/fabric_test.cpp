// Which of the node's fabric libraries come into a container, over or beside the image's, and which are refused? With
// libraries that a compiler makes, in directories that stand for node and image.
#include "hooks/inject/fabric/fabric.hpp"

#include <algorithm>
#include <climits>
#include <filesystem>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/base/text.hpp"
#include "common/base/unique_fd.hpp"
#include "hooks/inject/fabric/library_index.hpp"
#include "hooks/inject/ldcache/elf_file.hpp"
#include "tests/support/memory_log.hpp"
#include "tests/support/plan_text.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/unit/inject/ldcache_support.hpp"

using namespace situla;
using namespace situla::test;
namespace fs = std::filesystem;

namespace {

/// What one library is made of.
struct Recipe {
  std::string path;                     ///< beneath the directory: "node/usr/lib64/libfabric.so.1.18.0"
  std::string soname;                   ///< empty: its name
  std::vector<std::string> versions{};  ///< of its symbols; each has one, named after it: "FABRIC_1.0"
  std::vector<std::string> needs{};     ///< "LIBRARY" or "LIBRARY:VERSION", made before; paths beneath the directory
};

class Machine {
 public:
  Machine() {
    for (const char* directory : {"node/dev", "image/etc", "node/etc"}) fs::create_directories(dir / directory);
    for (const char* side : {"node", "image"})
      make({std::string(side) + "/usr/lib64/libc.so.6", "", {"GLIBC_2.2.5", "GLIBC_2.34"}});
  }

  /// A library with a function for each version, which calls one function of what it needs; and the link that ldconfig
  /// would make.
  void make(const Recipe& recipe) const {
    const std::string file = dir / recipe.path, name = file.substr(file.rfind('/') + 1);
    const std::string soname = recipe.soname.empty() ? name : recipe.soname;
    fs::create_directories(fs::path(file).parent_path());
    std::string code, script, libraries;
    for (const std::string& version : recipe.versions) {
      code += "int " + symbol(soname, version) + "(void) { return 1; }\n";
      script += version + " { global: " + symbol(soname, version) + "; };\n";
    }
    if (recipe.versions.empty()) code += "int " + symbol(soname, "") + "(void) { return 1; }\n";
    size_t calls = 0;
    for (const std::string& need : recipe.needs) {
      const auto parts = cut(need, ':');
      const std::string path(parts ? parts->first : need), version(parts ? parts->second : "");
      const std::string callee = symbol(soname_of(dir / path), version);
      code += "int " + callee + "(void);\nint call" + std::to_string(calls++) + "_" + symbol(soname, "") +
              "(void) { return " + callee + "(); }\n";
      libraries += " " + shell_quote(dir / path);
    }
    dir.write("code.c", code);
    dir.write("script", script);
    output_of("cd " + shell_quote(dir.path()) + " && gcc -w -fPIC -fno-builtin -nostdlib -shared -Wl,-soname," +
              soname + (script.empty() ? "" : " -Wl,--version-script,script") + " -o " + shell_quote(file) + " code.c" +
              libraries +
              " -Wl,--no-as-needed -Wl,--allow-shlib-undefined -Wl,--unresolved-symbols=ignore-in-shared-libs");
    const std::string link = file.substr(0, file.rfind('/') + 1) + soname;
    if (link != file && !fs::exists(link)) fs::create_symlink(name, link);
  }

  std::string plan(const std::vector<Fabric>& parts, const std::string& library_path = "") {
    log.messages.clear();
    const HostRoots roots{"/", "/", *RootDir::open(dir / "node"), *RootDir::open(dir / "node")};
    const RootDir root = *RootDir::open(dir / "image");
    const auto edits = fabric::edits(parts, {roots, root, library_path, log});
    return edits ? without_origins(describe(*edits)) : "error: " + edits.error().text();
  }

  TempDir dir;
  MemoryLog log;

 private:
  static std::string symbol(const std::string& soname, const std::string& version) {
    std::string name = "f_" + soname + "_" + version;
    std::replace_if(
        name.begin(), name.end(), [](char c) { return !isalnum(static_cast<unsigned char>(c)); }, '_');
    return name;
  }
  static std::string soname_of(const std::string& path) {
    const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    return ElfFile::read(fd.get())->soname;
  }
};

std::string mounted(const std::string& source, const std::string& target) {
  return "mount " + source + " on " + target + " [ro, nosuid, nodev, if possible]\n";
}
std::string added(const std::string& source, const std::string& soname) {
  return mounted(source, "/usr/lib/situla-fabric/" + soname);
}
std::string cached(const std::string& soname) {
  return "library " + soname + " /usr/lib/situla-fabric/" + soname + "\n";
}

}  // namespace

TEST_CASE("what libraries need and define is read as the linker does", "[elf]") {
  const Machine machine;
  machine.make(
      {"node/usr/lib64/libcxi.so.1.2", "libcxi.so.1", {"CXI_1", "CXI_2"}, {"node/usr/lib64/libc.so.6:GLIBC_2.34"}});
  const UniqueFd fd(open((machine.dir / "node/usr/lib64/libcxi.so.1").c_str(), O_RDONLY | O_CLOEXEC));
  const auto linkage = ElfFile::read_linkage(fd.get());
  REQUIRE(linkage);
  CHECK(linkage->needed == std::vector<std::string>{"libc.so.6"});
  CHECK(linkage->required == std::vector<ElfLinkage::Requirement>{{"libc.so.6", "GLIBC_2.34"}});
  REQUIRE(linkage->defined.size() == 3);
  CHECK(linkage->defined[1] == "CXI_1");
  CHECK(linkage->defined[2] == "CXI_2");
  const UniqueFd libc(open("/lib/x86_64-linux-gnu/libc.so.6", O_RDONLY | O_CLOEXEC));
  if (!libc) return;
  const auto system = ElfFile::read_linkage(libc.get());
  REQUIRE(system);
  CHECK(std::find(system->defined.begin(), system->defined.end(), "GLIBC_2.2.5") != system->defined.end());
  CHECK(system->needed == std::vector<std::string>{"ld-linux-x86-64.so.2"});
}

TEST_CASE("the node's libfabric takes the place of the image's, and brings what the image lacks") {
  Machine machine;
  machine.make({"image/usr/lib/x86_64-linux-gnu/libfabric.so.1.17.0", "libfabric.so.1", {"FABRIC_1.0", "FABRIC_1.5"}});
  machine.make({"node/usr/lib64/libjson.so.5.1", "libjson.so.5", {}, {"node/usr/lib64/libc.so.6:GLIBC_2.34"}});
  machine.make({"node/usr/lib64/libcxi.so.1.2", "libcxi.so.1", {}, {"node/usr/lib64/libjson.so.5"}});
  machine.make({"node/usr/lib64/libfabric.so.1.18.0",
                "libfabric.so.1",
                {"FABRIC_1.0", "FABRIC_1.5", "FABRIC_1.6"},
                {"node/usr/lib64/libcxi.so.1", "node/usr/lib64/libc.so.6:GLIBC_2.2.5"}});
  const std::string fabric = mounted("/usr/lib64/libfabric.so.1.18.0", "/usr/lib/x86_64-linux-gnu/libfabric.so.1.17.0");
  const std::string others = added("/usr/lib64/libcxi.so.1.2", "libcxi.so.1");
  const std::string json = added("/usr/lib64/libjson.so.5.1", "libjson.so.5");
  CHECK(machine.plan({Fabric::ofi}) == others + fabric + json + cached("libcxi.so.1") + cached("libjson.so.5"));
  CHECK(machine.log.messages.empty());
  // The same libraries, whoever asks for them.
  CHECK(machine.plan({Fabric::cxi, Fabric::ofi}) ==
        others + json + fabric + cached("libcxi.so.1") + cached("libjson.so.5"));
  // What the image has is used, as long as it has the versions.
  machine.make({"image/usr/lib64/libjson.so.5.0", "libjson.so.5"});
  CHECK(machine.plan({Fabric::ofi}) == others + fabric + cached("libcxi.so.1"));
  CHECK(machine.plan({}).empty());
}

TEST_CASE("an image without the library gets it beside its own, for what loads it by itself") {
  Machine machine;
  machine.make({"node/usr/lib64/libfabric.so.1.18.0", "libfabric.so.1", {"FABRIC_1.0"}});
  CHECK(machine.plan({Fabric::ofi}) ==
        added("/usr/lib64/libfabric.so.1.18.0", "libfabric.so.1") + cached("libfabric.so.1"));
}

TEST_CASE("all copies that a program may find are replaced") {
  Machine machine;
  machine.make({"node/usr/lib64/libfabric.so.1.18.0", "libfabric.so.1", {"FABRIC_1.0"}});
  machine.make({"image/usr/lib64/libfabric.so.1", "", {"FABRIC_1.0"}});
  machine.make({"image/opt/ofi/lib/libfabric.so.1.9.0", "libfabric.so.1", {"FABRIC_1.0"}});
  const std::string usual = mounted("/usr/lib64/libfabric.so.1.18.0", "/usr/lib64/libfabric.so.1");
  CHECK(machine.plan({Fabric::ofi}) == usual);
  CHECK(machine.plan({Fabric::ofi}, "relative:/opt/ofi/lib:/nowhere") ==
        mounted("/usr/lib64/libfabric.so.1.18.0", "/opt/ofi/lib/libfabric.so.1.9.0") + usual);
  // And the cache tells of further directories.
  machine.dir.write("image/etc/ld.so.conf", "/opt/ofi/lib\n");
  run_ldconfig(machine.dir / "image");
  CHECK_THAT(machine.plan({Fabric::ofi}), Catch::Contains("/opt/ofi/lib/libfabric.so.1.9.0"));
}

TEST_CASE("libraries that do not fit are refused, with the reason, and the image's own stay") {
  Machine machine;
  const auto refused = [&](LogLevel level, Fabric part, const std::string& reason) {
    CHECK(machine.plan({part}).empty());
    REQUIRE(machine.log.messages.size() == 1);
    CHECK(machine.log.messages.front().level == level);
    CHECK(machine.log.messages.front().text == "fabric = \"" + std::string(to_string(part)) +
                                                   (level == LogLevel::warning
                                                        ? "\": the image's own libraries are used: "
                                                        : "\": the node's libraries are not used: ") +
                                                   reason);
  };
  SECTION("the node has none") {
    refused(LogLevel::debug, Fabric::ofi, "the node has no libfabric.so.1");
  }
  SECTION("the image's C library is older") {
    machine.make({"node/usr/lib64/libc.so.6", "", {"GLIBC_2.2.5", "GLIBC_2.34", "GLIBC_2.38"}});
    machine.make({"node/usr/lib64/libfabric.so.1", "", {}, {"node/usr/lib64/libc.so.6:GLIBC_2.38"}});
    refused(LogLevel::info, Fabric::ofi,
            "the node's /usr/lib64/libfabric.so.1 needs GLIBC_2.38, and the image's /usr/lib64/libc.so.6 does not have "
            "it");
  }
  SECTION("so is that of a library that it needs") {
    machine.make({"node/usr/lib64/libc.so.6", "", {"GLIBC_2.2.5", "GLIBC_2.38"}});
    machine.make({"node/usr/lib64/libcxi.so.1", "", {}, {"node/usr/lib64/libc.so.6:GLIBC_2.38"}});
    machine.make({"node/usr/lib64/libfabric.so.1", "", {}, {"node/usr/lib64/libcxi.so.1"}});
    refused(
        LogLevel::info, Fabric::ofi,
        "the node's /usr/lib64/libcxi.so.1 needs GLIBC_2.38, and the image's /usr/lib64/libc.so.6 does not have it");
  }
  SECTION("an image's library that it needs is older") {
    machine.make({"node/usr/lib64/libnl.so.3", "", {"NL_1", "NL_2"}});
    machine.make({"image/usr/lib64/libnl.so.3", "", {"NL_1"}});
    machine.make({"node/usr/lib64/libfabric.so.1", "", {}, {"node/usr/lib64/libnl.so.3:NL_2"}});
    refused(LogLevel::info, Fabric::ofi,
            "the node's /usr/lib64/libfabric.so.1 needs NL_2, and the image's /usr/lib64/libnl.so.3 does not have it");
  }
  SECTION("the image's is newer, by the versions of its symbols") {
    machine.make({"node/usr/lib64/libfabric.so.1", "", {"FABRIC_1.0"}});
    machine.make({"image/usr/lib64/libfabric.so.1", "", {"FABRIC_1.0", "FABRIC_1.7"}});
    refused(LogLevel::warning, Fabric::ofi,
            "the image's /usr/lib64/libfabric.so.1 is newer: the node's /usr/lib64/libfabric.so.1 has no FABRIC_1.7");
  }
  SECTION("the image's is newer, by the name of its file") {
    machine.make({"node/usr/lib64/libfabric.so.1.1.8", "libfabric.so.1"});
    machine.make({"image/usr/lib64/libfabric.so.1.3.0", "libfabric.so.1"});
    refused(LogLevel::warning, Fabric::ofi,
            "the image's /usr/lib64/libfabric.so.1.3.0 is newer than the node's /usr/lib64/libfabric.so.1.1.8");
  }
  SECTION("the image has another interface") {
    machine.make({"node/usr/lib64/libmpi.so.12", ""});
    machine.make({"image/usr/lib/libmpi.so.40", ""});
    run_ldconfig(machine.dir / "image");
    refused(LogLevel::info, Fabric::mpi, "the image has libmpi.so.40, and the node libmpi.so.12");
  }
  SECTION("nobody has what it needs") {
    machine.make({"node/usr/lib64/libnl.so.3", ""});
    machine.make({"node/usr/lib64/libfabric.so.1", "", {}, {"node/usr/lib64/libnl.so.3"}});
    fs::remove(machine.dir / "node/usr/lib64/libnl.so.3");
    refused(LogLevel::info, Fabric::ofi,
            "neither image nor node has libnl.so.3, which /usr/lib64/libfabric.so.1 needs");
  }
  SECTION("the image has one, and its C library is older") {
    machine.make({"node/usr/lib64/libc.so.6", "", {"GLIBC_2.2.5", "GLIBC_2.38"}});
    machine.make({"node/usr/lib64/libfabric.so.1", "", {}, {"node/usr/lib64/libc.so.6:GLIBC_2.38"}});
    machine.make({"image/usr/lib64/libfabric.so.1", ""});
    refused(LogLevel::warning, Fabric::ofi,
            "the node's /usr/lib64/libfabric.so.1 needs GLIBC_2.38, and the image's /usr/lib64/libc.so.6 does not have "
            "it");
  }
  SECTION("it needs what only the node's glibc has inside") {
    for (const char* side : {"node", "image"})
      machine.make({std::string(side) + "/usr/lib64/libc.so.6", "", {"GLIBC_2.2.5", "GLIBC_PRIVATE"}});
    machine.make({"node/usr/lib64/libcxi.so.1", "", {}, {"node/usr/lib64/libc.so.6:GLIBC_PRIVATE"}});
    machine.make({"node/usr/lib64/libfabric.so.1", "", {}, {"node/usr/lib64/libcxi.so.1"}});
    refused(LogLevel::info, Fabric::ofi,
            "the node's /usr/lib64/libcxi.so.1 needs GLIBC_PRIVATE, which only the node's own glibc has");
  }
}

TEST_CASE("no part of the node's glibc comes along") {
  Machine machine;
  for (const char* name : {"libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libresolv.so.2", "libutil.so.1",
                           "libanl.so.1", "libnss_files.so.2", "libnsl.so.1", "libmvec.so.1", "libthread_db.so.1",
                           "libBrokenLocale.so.1", "ld-linux-x86-64.so.2", "libc_malloc_debug.so.0"}) {
    INFO(name);
    const std::string part = std::string("node/usr/lib64/") + name;
    machine.make({part, ""});
    machine.make({"node/usr/lib64/libfabric.so.1", "", {}, {part}});
    CHECK(machine.plan({Fabric::ofi}).empty());
    CHECK(machine.log.count(LogLevel::info, std::string("the image has no ") + name + ", which") == 1);
  }
}

TEST_CASE("numbers in the names of MPI's files say nothing: each maker counts its own way") {
  Machine machine;
  machine.make({"node/usr/lib64/libmpi.so.12.1.8", "libmpi.so.12"});
  machine.make({"image/usr/lib64/libmpi.so.12.3.0", "libmpi.so.12"});
  CHECK(machine.plan({Fabric::mpi}) == mounted("/usr/lib64/libmpi.so.12.1.8", "/usr/lib64/libmpi.so.12.3.0"));
  CHECK(machine.log.messages.empty());
}

TEST_CASE("an image that says very much is not listened to for long") {
  Machine machine;
  machine.make({"node/usr/lib64/libfabric.so.1", "", {"FABRIC_1.0"}});
  machine.make({"image/opt/last/libfabric.so.1", "", {"FABRIC_1.0"}});
  std::string path;
  for (int i = 0; i < 62; ++i) path += "/opt/" + std::to_string(i) + ":";
  CHECK_THAT(machine.plan({Fabric::ofi}, path + "/opt/62:/opt/last"), Catch::Contains("/opt/last/libfabric.so.1"));
  CHECK(machine.plan({Fabric::ofi}, path + "/opt/62:/opt/63:/opt/last") ==
        added("/usr/lib64/libfabric.so.1", "libfabric.so.1") + cached("libfabric.so.1"));
  // Names of more than a file's length.
  const std::string version = "FABRIC_" + std::string(NAME_MAX, '1');
  machine.make({"image/usr/lib64/libfabric.so.1", "", {version}});
  machine.make({"image/usr/lib64/libuser.so.1", "", {}, {"image/usr/lib64/libfabric.so.1:" + version}});
  for (const char* name : {"libfabric.so.1", "libuser.so.1"}) {
    const UniqueFd fd(open((machine.dir / (std::string("image/usr/lib64/") + name)).c_str(), O_RDONLY | O_CLOEXEC));
    const auto linkage = ElfFile::read_linkage(fd.get());
    REQUIRE_FALSE(linkage);
    CHECK(linkage.error().kind() == ErrorKind::corrupt);
    CHECK_THAT(linkage.error().message(), Catch::Contains("a name that is too long"));
  }
}

TEST_CASE("a name is looked up once, and a cache has its order") {
  const Machine machine;
  machine.make({"image/opt/one/libnl.so.3", ""});
  machine.make({"image/opt/two/libnl.so.3", ""});
  machine.make({"image/opt/two/libnl.so.4", ""});
  machine.dir.write("image/etc/ld.so.conf", "/opt/two\n/opt/one\n");
  run_ldconfig(machine.dir / "image");
  const RootDir root = *RootDir::open(machine.dir / "image");
  const auto index = fabric::LibraryIndex::load(root);
  const auto& found = index.find("libnl.so.3");
  REQUIRE(found);
  CHECK(found->path == "/opt/two/libnl.so.3");
  CHECK(index.names_like("libnl.so.") == std::vector<std::string>{"libnl.so.3", "libnl.so.4"});
  CHECK(index.names_like("libnm").empty());
  CHECK(index.find_all("libnl.so.3").size() == 2);
  CHECK_FALSE(index.find("libnl.so.5"));
  fs::remove_all(machine.dir / "image/opt");
  CHECK(&index.find("libnl.so.3") == &found);
  CHECK(found->path == "/opt/two/libnl.so.3");
  machine.make({"image/usr/lib64/libnl.so.5", ""});
  CHECK_FALSE(index.find("libnl.so.5"));
  // A cache of nothing but names.
  std::vector<std::string> names;
  for (int i = 0; i < 1000; ++i) names.push_back("libfabric.so." + std::to_string(i));
  LdCache many;
  for (const std::string& name : names) many.entries.push_back({name, "/usr/lib64/x", native_ld_flags(false)});
  machine.dir.write("image/etc/ld.so.cache", many.serialize());
  CHECK(fabric::LibraryIndex::load(root).names_like("libfabric.so.").size() == 64);
}

TEST_CASE("the parts of which the node has nothing") {
  const Machine machine;
  machine.make({"node/usr/lib64/libfabric.so.1", ""});
  machine.make({"node/usr/lib64/libmpifort.so.12", ""});
  const RootDir node = *RootDir::open(machine.dir / "node");
  CHECK(fabric::missing_libraries({Fabric::ofi, Fabric::ucx, Fabric::mpi}, node) ==
        std::vector<std::string>{"libucp.so.0", "libmpi.so.12"});
  CHECK(fabric::missing_libraries({Fabric::ofi}, node).empty());
}

TEST_CASE("a part that does not fit leaves the others") {
  Machine machine;
  machine.make({"node/usr/lib64/libcxi.so.1", "", {"CXI_1"}});
  machine.make({"image/usr/lib64/libcxi.so.1", "", {"CXI_1", "CXI_2"}});
  machine.make({"node/usr/lib64/libfabric.so.1", "", {}, {"node/usr/lib64/libcxi.so.1:CXI_1"}});
  CHECK(machine.plan({Fabric::cxi, Fabric::ofi}) ==
        added("/usr/lib64/libfabric.so.1", "libfabric.so.1") + cached("libfabric.so.1"));
  CHECK(machine.log.count(LogLevel::warning, "fabric = \"cxi\"") == 1);
  CHECK(machine.log.messages.size() == 1);
}

TEST_CASE("UCX comes with its modules, beside the library and where it was built for") {
  Machine machine;
  for (const char* name : {"libucs", "libucm", "libuct", "libucp"})
    machine.make({std::string("node/opt/ucx/lib/") + name + ".so.0.0.0", std::string(name) + ".so.0"});
  machine.make({"node/opt/ucx/lib/libibverbs.so.1", ""});
  machine.make({"node/usr/lib64/libc.so.6", "", {"GLIBC_2.2.5", "GLIBC_2.38"}});
  machine.make({"node/opt/ucx/lib/libcuda.so.1", ""});
  machine.make({"node/opt/ucx/lib/ucx/libuct_ib.so.0.0.0", "libuct_ib.so.0", {}, {"node/opt/ucx/lib/libibverbs.so.1"}});
  machine.make({"node/opt/ucx/lib/ucx/libuct_rdmacm.so.0", "", {}, {"node/opt/ucx/lib/ucx/libuct_ib.so.0"}});
  machine.make({"node/opt/ucx/lib/ucx/libuct_new.so.0", "", {}, {"node/usr/lib64/libc.so.6:GLIBC_2.38"}});
  machine.make({"node/opt/ucx/lib/ucx/libuct_cuda.so.0", "", {}, {"node/opt/ucx/lib/libcuda.so.1"}});
  fs::remove(machine.dir / "node/opt/ucx/lib/libcuda.so.1");
  machine.dir.write("node/etc/ld.so.conf", "/opt/ucx/lib\n");
  run_ldconfig(machine.dir / "node");
  machine.make({"image/usr/lib64/libucp.so.0.0.0", "libucp.so.0"});
  machine.make({"image/usr/lib64/libucs.so.0.0.0", "libucs.so.0"});
  const std::string plan = machine.plan({Fabric::ucx});
  for (const std::string& line :
       {mounted("/opt/ucx/lib/libucp.so.0.0.0", "/usr/lib64/libucp.so.0.0.0"),
        mounted("/opt/ucx/lib/libucs.so.0.0.0", "/usr/lib64/libucs.so.0.0.0"),
        added("/opt/ucx/lib/libuct.so.0.0.0", "libuct.so.0"), added("/opt/ucx/lib/libucm.so.0.0.0", "libucm.so.0"),
        added("/opt/ucx/lib/libibverbs.so.1", "libibverbs.so.1"), mounted("/opt/ucx/lib/ucx", "/usr/lib64/ucx"),
        mounted("/opt/ucx/lib/ucx", "/opt/ucx/lib/ucx"), cached("libibverbs.so.1")}) {
    INFO(plan);
    CHECK_THAT(plan, Catch::Contains(line));
  }
  CHECK_THAT(plan, !Catch::Contains("libcuda") && !Catch::Contains("signal"));
  CHECK(machine.log.count(LogLevel::detail, "libuct_new.so.0 will not be loaded: the node's") == 1);
  CHECK(machine.log.count(LogLevel::detail, "will not be loaded") == 1);
  CHECK(machine.log.count(LogLevel::debug, "libuct_rdmacm") == 0);  // it finds the module that is loaded
  CHECK(machine.log.count(LogLevel::debug, "libuct_cuda.so.0 will not be loaded: neither image nor node has") == 1);
}

TEST_CASE("where verbs come from the node, their providers do, too, those that are links as well") {
  Machine machine;
  machine.make({"node/usr/lib64/libibverbs.so.1.14", "libibverbs.so.1", {"IBVERBS_1.1"}});
  machine.make({"node/usr/lib64/libmlx5.so.1.24", "libmlx5.so.1", {}, {"node/usr/lib64/libibverbs.so.1:IBVERBS_1.1"}});
  machine.make({"node/usr/lib64/libnl.so.3", ""});
  machine.make({"node/usr/lib64/libibverbs/libefa-rdmav34.so", "", {}, {"node/usr/lib64/libnl.so.3"}});
  fs::create_symlink("../libmlx5.so.1.24", machine.dir / "node/usr/lib64/libibverbs/libmlx5-rdmav34.so");
  machine.dir.write("node/etc/libibverbs.d/mlx5.driver", "driver mlx5\n");
  machine.make({"node/usr/lib64/libfabric.so.1", "", {}, {"node/usr/lib64/libibverbs.so.1:IBVERBS_1.1"}});
  const std::string plan = machine.plan({Fabric::ofi});
  for (const std::string& line :
       {added("/usr/lib64/libibverbs.so.1.14", "libibverbs.so.1"), added("/usr/lib64/libnl.so.3", "libnl.so.3"),
        mounted("/usr/lib64/libibverbs", "/usr/lib64/libibverbs"), mounted("/etc/libibverbs.d", "/etc/libibverbs.d"),
        mounted("/usr/lib64/libibverbs", "/usr/lib/situla-fabric/libibverbs"),
        mounted("/usr/lib64/libmlx5.so.1.24", "/usr/lib64/libmlx5.so.1.24")}) {
    INFO(plan);
    CHECK_THAT(plan, Catch::Contains(line));
  }
  // An image's own verbs have their own providers.
  machine.make({"image/usr/lib64/libibverbs.so.1", "", {"IBVERBS_1.1"}});
  CHECK(machine.plan({Fabric::ofi}) == added("/usr/lib64/libfabric.so.1", "libfabric.so.1") + cached("libfabric.so.1"));
}

TEST_CASE("Slingshot's devices come with its library, those that can be opened") {
  Machine machine;
  machine.make({"node/usr/lib64/libcxi.so.1", ""});
  for (const char* name : {"cxi0", "cxi1", "cxi_user", "cxi"}) machine.dir.write(std::string("node/dev/") + name, "");
  REQUIRE(chmod((machine.dir / "node/dev/cxi1").c_str(), 0) == 0);
  const std::string plan = machine.plan({Fabric::cxi});
  CHECK_THAT(plan, Catch::Contains("device /dev/cxi0 on /dev/cxi0 [if possible]\n") && !Catch::Contains("cxi_user"));
  if (access((machine.dir / "node/dev/cxi1").c_str(), R_OK) != 0) CHECK_THAT(plan, !Catch::Contains("/dev/cxi1"));
}

TEST_CASE("images without glibc are left alone, and what only looks like a library is none") {
  Machine machine;
  machine.make({"node/usr/lib64/libfabric.so.1", ""});
  machine.dir.write("image/usr/lib64/libfabric.so.1", "/* GNU ld script */ GROUP ( /lib/libc.so.6 )");
  CHECK(machine.plan({Fabric::ofi}) == added("/usr/lib64/libfabric.so.1", "libfabric.so.1") + cached("libfabric.so.1"));
  fs::remove(machine.dir / "image/usr/lib64/libc.so.6");
  CHECK(machine.plan({Fabric::ofi}).empty());
  CHECK(machine.log.count(LogLevel::debug, "the image has no glibc") == 1);
}
