// When does an inventory that was kept serve, and when is everything gathered anew?
#include <sys/stat.h>

#include "../../support/as_user.hpp"
#include "../../support/memory_log.hpp"
#include "fake_machine.hpp"
#include <catch2/catch.hpp>

#include "hooks/inject/inventory/inventory_cache.hpp"

namespace fs = std::filesystem;
using namespace situla;
using namespace situla::nvidia;
using situla::test::FakeMachine;
using situla::test::MemoryLog;

namespace {

/// A machine whose inventory was kept in a file.
class Kept {
 public:
  explicit Kept(const std::string& options = "--gpus 2 --mig")
      : machine("--devices files " + options + " --nvml " + SITULA_MOCK_NVML) {
    fs::permissions(directory.path(), fs::perms(0755));
    REQUIRE(keep_node_inventory(machine.roots(), file, {SITULA_NVML_PROGRAM, kNvmlLimit}, log));
  }
  /// Why the file does not serve; empty: it does. Then it must be what NVML said: here nobody is asked.
  std::string stale() {
    const auto found = node_inventory(machine.roots(), file, {}, log);
    REQUIRE(found);
    CHECK(found->inventory.from_nvml == found->stale.empty());
    return found->stale;
  }

  FakeMachine machine;
  test::TempDir directory;
  std::string file = directory / "run/nvidia.json";
  MemoryLog log;
};

const std::string kOther = "the driver, its GPUs or their MIG devices are not those of ";

}  // namespace

TEST_CASE("an inventory that was kept serves until something changes") {
  Kept kept;
  struct stat status {};
  REQUIRE(stat(kept.file.c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0644);
  CHECK(kept.stale().empty());

  SECTION("another boot") {
    kept.machine.write("proc/sys/kernel/random/boot_id", "11111111-2222\n");
  }
  SECTION("another driver") {
    kept.machine.write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  999.88.78  x\n");
  }
  SECTION("other libraries") {
    const std::string cache = test::slurp(kept.machine / "etc/ld.so.cache");
    kept.machine.write("etc/new", cache);
    fs::rename(kept.machine / "etc/new", kept.machine / "etc/ld.so.cache");
  }
  SECTION("no cache of libraries any more") {
    kept.machine.remove("etc/ld.so.cache");
  }
  SECTION("a control node that came or went") {
    kept.machine.remove("dev/nvidiactl");
  }
  SECTION("a GPU more") {
    kept.machine.write("proc/driver/nvidia/gpus/0000:99:00.0/information", "Device Minor: 7\n");
  }
  SECTION("a GPU less") {
    kept.machine.remove("proc/driver/nvidia/gpus/0000:07:00.0");
  }
  SECTION("a MIG device less") {
    kept.machine.remove("proc/driver/nvidia/capabilities/gpu1/mig/gi13/ci1");
  }
  SECTION("a MIG device more") {
    kept.machine.write("proc/driver/nvidia/capabilities/gpu0/mig/gi3/ci0/access", "DeviceFileMinor: 31\n");
  }
  CHECK(kept.stale() == kOther + kept.file);
}

TEST_CASE("an inventory of other roots does not serve") {
  Kept kept, other;
  REQUIRE(node_inventory(kept.machine.roots(), other.file, {}, kept.log)->stale == kOther + other.file);
}

TEST_CASE("only a file that nobody else can have written is believed") {
  Kept kept;
  SECTION("writable by the group") {
    fs::permissions(kept.file, fs::perms(0664));
    CHECK(kept.stale() == kept.file + " belongs to somebody else, or others may write it");
  }
  SECTION("writable by all") {
    fs::permissions(kept.file, fs::perms(0646));
    CHECK(kept.stale() == kept.file + " belongs to somebody else, or others may write it");
  }
  SECTION("in a directory that others may write") {
    fs::permissions(kept.directory / "run", fs::perms(0777));
    CHECK(kept.stale() == kept.directory / "run/ belongs to somebody else, or others may write it");
  }
  SECTION("a link") {
    fs::rename(kept.file, kept.directory / "elsewhere");
    fs::create_symlink(kept.directory / "elsewhere", kept.file);
    CHECK_FALSE(kept.stale().empty());
  }
  SECTION("a FIFO") {
    fs::remove(kept.file);
    REQUIRE(mkfifo(kept.file.c_str(), 0600) == 0);
    CHECK_FALSE(kept.stale().empty());
  }
  SECTION("missing") {
    fs::remove(kept.file);
    CHECK(kept.stale().find("No such file") != std::string::npos);
  }
  SECTION("cut off") {
    fs::resize_file(kept.file, 1000);
    CHECK(kept.stale() == "read the inventory: not JSON");
  }
  SECTION("of somebody else") {
    if (geteuid() != 0) return;
    REQUIRE(chown(kept.file.c_str(), test::kTestUid + 1, 0) == 0);
    CHECK(kept.stale() == kept.file + " belongs to somebody else, or others may write it");
  }
}

TEST_CASE("root's file is believed in a user namespace, where root has no name") {
  if (geteuid() != 0) return;
  Kept kept;
  CHECK(test::in_user_namespace([&]() -> Result<void> {
          TRY_ASSIGN(const auto found, node_inventory(kept.machine.roots(), kept.file, {}, kept.log));
          EXPECT(found.stale.empty());
          EXPECT(found.inventory.from_nvml);
          return {};
        }).empty());
  CHECK(test::in_user_namespace(
            [&]() -> Result<void> {
              TRY_ASSIGN(const auto found, node_inventory(kept.machine.roots(), kept.file, {}, kept.log));
              EXPECT(found.stale.empty());
              return {};
            },
            true)
            .empty());
}

TEST_CASE("nodes and sockets are those of now, whatever was kept") {
  Kept kept("--gpus 2 --mig --extra-nodes");
  kept.machine.remove("dev/nvidia-uvm");
  kept.machine.remove("run/nvidia-fabricmanager");
  kept.machine.write("dev/nvidia-fs2", "");
  const auto found = node_inventory(kept.machine.roots(), kept.file, {}, kept.log);
  REQUIRE(found);
  CHECK(found->stale.empty());
  CHECK_FALSE(found->inventory.nodes.uvm);
  CHECK(found->inventory.nodes.gds.size() == 3);
  REQUIRE(found->inventory.sockets.size() == 1);
  CHECK(found->inventory.sockets[0].path == "/run/nvidia-persistenced/socket");
}

TEST_CASE("without a driver there is nothing to keep, and what was kept goes away") {
  Kept kept;
  kept.machine.remove("proc/driver");
  CHECK_FALSE(has_driver(kept.machine.roots()));
  const auto found = node_inventory(kept.machine.roots(), kept.file, {}, kept.log);
  REQUIRE_FALSE(found);
  CHECK(found.error().kind() == ErrorKind::not_found);
  const auto again = keep_node_inventory(kept.machine.roots(), kept.file, {}, kept.log);
  REQUIRE_FALSE(again);
  CHECK(again.error().kind() == ErrorKind::not_found);
  CHECK_FALSE(fs::exists(kept.file));
}

TEST_CASE("who keeps it can ask first whether there is need") {
  Kept kept;
  CHECK(kept_inventory_is_right(kept.machine.roots(), kept.file));
  fs::last_write_time(kept.file, fs::file_time_type::clock::now() - std::chrono::minutes(20));
  CHECK(kept_inventory_is_right(kept.machine.roots(), kept.file));
  // The management library did not answer: it may do so a while later.
  REQUIRE(keep_node_inventory(kept.machine.roots(), kept.file, {}, kept.log));
  CHECK(kept_inventory_is_right(kept.machine.roots(), kept.file));
  fs::last_write_time(kept.file, fs::file_time_type::clock::now() - std::chrono::minutes(20));
  CHECK_FALSE(kept_inventory_is_right(kept.machine.roots(), kept.file));
  REQUIRE(keep_node_inventory(kept.machine.roots(), kept.file, {SITULA_NVML_PROGRAM, kNvmlLimit}, kept.log));
  kept.machine.remove("proc/driver/nvidia/gpus/0000:07:00.0");
  CHECK_FALSE(kept_inventory_is_right(kept.machine.roots(), kept.file));
}
