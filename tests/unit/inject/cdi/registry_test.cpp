// Which devices does a node have when its specifications are many, broken, or contradict each other?
#include "hooks/inject/cdi/registry.hpp"

#include <string>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "tests/support/as_user.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

std::string specification(const std::string& kind, const std::vector<std::string>& names) {
  std::string text = "cdiVersion: 0.5.0\nkind: " + kind + "\ndevices:\n";
  for (const std::string& name : names) text += "- {name: \"" + name + "\", containerEdits: {env: [A=1]}}\n";
  return text;
}

std::string listing(const CdiRegistry& registry, const test::TempDir& dir) {
  std::string text;
  for (const CdiDeviceEntry& entry : registry.devices())
    text += entry.name + " " + entry.file.substr(dir.path().size() + 1) + "\n";
  return text;
}

}  // namespace

TEST_CASE("the devices of a node, by name, from files of two directories") {
  const test::TempDir dir;
  dir.write("etc/nvidia.yaml", specification("nvidia.com/gpu", {"0", "all"}));
  dir.write("etc/nested/other.yaml", specification("other.com/gpu", {"0"}));
  dir.write("etc/notes.txt", specification("notes.com/gpu", {"0"}));
  dir.write("etc/old.yaml.bak", specification("backup.com/gpu", {"0"}));
  dir.write(
      "run/amd.json",
      R"({"cdiVersion": "0.5.0", "kind": "amd.com/gpu", "devices": [{"name": "0", "containerEdits": {"env": ["A=1"]}}]})");
  dir.write("run/nvidia-new.yaml", specification("nvidia.com/gpu", {"0", "1"}));
  const auto registry = CdiRegistry::load({dir / "etc", dir / "missing", dir / "run"});
  CHECK(listing(registry, dir) ==
        "amd.com/gpu=0 run/amd.json\n"
        "nvidia.com/gpu=0 run/nvidia-new.yaml\n"
        "nvidia.com/gpu=1 run/nvidia-new.yaml\n"
        "nvidia.com/gpu=all etc/nvidia.yaml\n");
  CHECK(registry.errors().empty());
  CHECK(registry.kinds() == std::vector<std::string>{"amd.com/gpu", "nvidia.com/gpu"});
  CHECK(registry.names_of_kind("nvidia.com/gpu") == std::vector<std::string>{"0", "1", "all"});
  CHECK(registry.find("nvidia.com/gpu=0").spec->file == dir / "run/nvidia-new.yaml");
  CHECK(registry.find("nvidia.com/gpu=2").spec == nullptr);
}

TEST_CASE("two files of one directory that both have a device: it is taken from neither, the others stay") {
  const test::TempDir dir;
  dir.write("etc/a.yaml", specification("a.com/b", {"0", "1"}));
  dir.write("etc/b.yaml", specification("a.com/b", {"1", "2"}));
  const auto registry = CdiRegistry::load({dir / "etc"});
  CHECK(listing(registry, dir) == "a.com/b=0 etc/a.yaml\na.com/b=2 etc/b.yaml\n");
  REQUIRE(registry.errors().size() == 1);
  CHECK(registry.errors()[0].message() ==
        "a.com/b=1 is in " + dir / "etc/a.yaml" + " and in " + dir / "etc/b.yaml" + ": it is taken from neither");

  SECTION("a directory that counts for more settles it") {
    dir.write("run/c.yaml", specification("a.com/b", {"1"}));
    CHECK(CdiRegistry::load({dir / "etc", dir / "run"}).find("a.com/b=1").spec->file == dir / "run/c.yaml");
  }
}

TEST_CASE("a broken file disables only itself") {
  const test::TempDir dir;
  dir.write("etc/a.yaml", specification("a.com/b", {"0"}));
  dir.write("etc/broken.yaml", "cdiVersion: 0.5.0\nkind: a.com/c\ndevices:\n- name: x\n");
  dir.write("etc/empty.json", "");
  const std::string large = dir.write("etc/large.yaml", std::string(cdi::kMostDocumentBytes + 1, '#'));
  REQUIRE(mkfifo((dir / "etc/fifo.yaml").c_str(), 0600) == 0);
  REQUIRE(mkdir((dir / "etc/directory.yaml").c_str(), 0755) == 0);
  const auto registry = CdiRegistry::load({dir / "etc"});
  CHECK(listing(registry, dir) == "a.com/b=0 etc/a.yaml\n");
  std::string errors;
  for (const Error& error : registry.errors()) errors += error.message().substr(dir.path().size()) + "\n";
  CHECK(errors ==
        "/etc/broken.yaml: devices[0].containerEdits: missing\n"
        "/etc/directory.yaml: not a regular file\n"
        "/etc/empty.json: line 1: ends too early\n"
        "/etc/fifo.yaml: not a regular file\n"
        "/etc/large.yaml: read: larger than 2097152 bytes\n");
  REQUIRE(registry.errors_of_kind("a.com/c").size() == 1);
  CHECK(registry.errors_of_kind("a.com/b").empty());
  CHECK(registry.errors_of_kind("").size() == 4);
}

TEST_CASE("a file that somebody else may have written is not believed") {
  const test::TempDir dir;
  const std::string file = dir.write("etc/a.yaml", specification("a.com/b", {"0"}));
  const mode_t mode = GENERATE(0664U, 0646U, 0666U);
  REQUIRE(chmod(file.c_str(), mode) == 0);
  const auto registry = CdiRegistry::load({dir / "etc"});
  CHECK(registry.devices().empty());
  REQUIRE(registry.errors().size() == 1);
  CHECK(registry.errors()[0].text() == file + ": others than its owner may write to it [cdi]\nhint: chmod go-w");
}

TEST_CASE("as a job's user: root's files are believed, also in a user namespace, and unreadable ones explained") {
  if (geteuid() != 0) {
    WARN("SKIP: needs root, to have files of several owners");
    return;
  }
  const test::TempDir dir;
  REQUIRE(chmod(dir.path().c_str(), 0755) == 0);
  dir.write("etc/root.yaml", specification("root.com/b", {"0"}));
  const std::string secret = dir.write("etc/secret.yaml", specification("secret.com/b", {"0"}));
  const std::string own = dir.write("etc/own.yaml", specification("own.com/b", {"0"}));
  const std::string other = dir.write("etc/other.yaml", specification("other.com/b", {"0"}));
  REQUIRE(chmod(secret.c_str(), 0600) == 0);
  test::give_to_user(own);
  REQUIRE(chown(other.c_str(), 64999, 64999) == 0);
  const auto check = [&](bool others_can_be_told) -> Result<void> {
    const auto registry = CdiRegistry::load({dir / "etc"});
    EXPECT(registry.find("root.com/b=0").spec != nullptr);
    EXPECT(registry.find("own.com/b=0").spec != nullptr);
    EXPECT(registry.find("secret.com/b=0").spec == nullptr);
    std::string errors;
    for (const Error& error : registry.errors()) errors += error.text() + "\n";
    EXPECT(errors.find(secret +
                       ": Permission denied [cdi]\nhint: jobs read CDI specifications as their users: chmod a+r") !=
           std::string::npos);
    const bool refused =
        errors.find(other + ": it belongs to user 64999, neither to root nor to you") != std::string::npos;
    EXPECT(refused == others_can_be_told);
    return {};
  };
  CHECK(test::as_user([&] { return check(true); }) == "");
  CHECK(test::in_user_namespace([&] { return check(false); }) == "");
  CHECK(test::in_user_namespace([&] { return check(false); }, true) == "");
}

TEST_CASE("a specification of 8 GPUs and 60 mounts is read whole") {
  const test::TempDir dir;
  std::string yaml = "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ncontainerEdits:\n  mounts:\n";
  for (int i = 0; i < 60; ++i) {
    const std::string library = "/usr/lib/x86_64-linux-gnu/libnvidia-" + std::to_string(i) + ".so.999.88.77";
    yaml += "  - containerPath: " + library + "\n    hostPath: " + library + "\n    options:\n";
    for (const char* option : {"ro", "nosuid", "nodev", "rbind", "rprivate"})
      yaml += "    - " + std::string(option) + "\n";
  }
  yaml += "devices:\n";
  for (int i = 0; i < 8; ++i)
    yaml += "- containerEdits:\n    deviceNodes:\n    - path: /dev/nvidia" + std::to_string(i) + "\n  name: \"" +
            std::to_string(i) + "\"\n";
  dir.write("etc/nvidia.yaml", yaml);
  const auto registry = CdiRegistry::load({dir / "etc"});
  CHECK(registry.errors().empty());
  REQUIRE(registry.devices().size() == 8);
  const cdi::Spec* spec = registry.find("nvidia.com/gpu=7").spec;
  REQUIRE(spec != nullptr);
  REQUIRE(spec->edits.mounts.size() == 60);
  CHECK(spec->edits.mounts[59].options == std::vector<std::string>{"ro", "nosuid", "nodev", "rbind", "rprivate"});
}
