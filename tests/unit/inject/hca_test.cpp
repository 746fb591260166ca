// Which network adapters does a container get? Golden plans for machines of tests/gpu/make-hca-root. GPU.md 6.
#include "hooks/inject/hca/hca.hpp"

#include <cstdlib>
#include <filesystem>

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/base/text.hpp"
#include "hooks/inject/hca/adapters.hpp"
#include "tests/support/as_user.hpp"
#include "tests/support/memory_log.hpp"
#include "tests/support/plan_text.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

/// A machine with these adapters.
struct Machine {
  explicit Machine(const std::vector<std::string>& words) : roots(make(words)) {}

  HostRoots make(const std::vector<std::string>& words) const {
    std::string command = SITULA_SOURCE_DIR "/tests/gpu/make-hca-root " + shell_quote(dir / "machine");
    for (const std::string& word : words) command += " " + shell_quote(word);
    REQUIRE(std::system(command.c_str()) == 0);
    return {"/", "/", *RootDir::open("/"), *RootDir::open(dir / "machine")};
  }
  [[nodiscard]] std::string path(const std::string& name) const { return dir / ("machine" + name); }

  /// The plan, or the error.
  std::string plan(const std::string& value, bool real_root = false) {
    Environment host;
    host.set("MELLANOX_VISIBLE_DEVICES", value);
    return text(hca::edits_by_variable({roots, host, {}, real_root, log}));
  }
  std::string plan_of_image(const std::string& value) {
    Environment image;
    image.set("MELLANOX_VISIBLE_DEVICES", value);
    return text(hca::edits_by_variable({roots, {}, image, false, log}));
  }
  std::string plan_of_names(const std::vector<std::string>& names) {
    return text(hca::edits_by_name(names, roots, log));
  }
  [[nodiscard]] std::vector<hca::Adapter> adapters() const {
    auto all = hca::adapters(roots.devices);
    if (!all) FAIL(all.error().text());
    return *all;
  }
  /// "mlx5_0 mlx5_1 ..." in the order of the indices.
  [[nodiscard]] std::string order() const {
    std::vector<std::string> names;
    for (const hca::Adapter& adapter : adapters()) names.push_back(adapter.name);
    return join(names, " ");
  }

  static std::string text(const Result<ContainerEdits>& edits) {
    return edits ? test::without_origins(describe(*edits)) : "error: " + edits.error().text() + "\n";
  }

  test::TempDir dir;
  HostRoots roots;
  test::MemoryLog log;
};

const std::string kHidden =
    "cover /sys/class/infiniband [nosuid, nodev, noexec]\n"
    "cover /sys/class/infiniband_verbs [nosuid, nodev, noexec]\n"
    "cover /sys/class/infiniband_mad [nosuid, nodev, noexec, if possible]\n"
    "mount /sys/class/infiniband_verbs/abi_version on /sys/class/infiniband_verbs/abi_version "
    "[ro, nosuid, nodev, noexec]\n"
    "mount /sys/class/infiniband_mad/abi_version on /sys/class/infiniband_mad/abi_version "
    "[ro, nosuid, nodev, noexec, if possible]\n"
    "device /dev/infiniband/rdma_cm on /dev/infiniband/rdma_cm (c 10:56)\n";

std::string uverbs(int number) {
  const std::string node = "/dev/infiniband/uverbs" + std::to_string(number);
  return "device " + node + " on " + node + " (c 231:" + std::to_string(192 + number) + ")\n";
}

/// The links that show an adapter at a function.
std::string links(const std::string& name, int number, const std::string& function) {
  const std::string directory =
      "../../devices/pci" + function.substr(0, 4) + ":00/" + function.substr(0, 4) + ":00:01.0/" + function;
  const std::string verbs = "infiniband_verbs/uverbs" + std::to_string(number);
  return "link /sys/class/infiniband/" + name + " -> " + directory + "/infiniband/" + name + "\n" + "link /sys/class/" +
         verbs + " -> " + directory + "/" + verbs + "\n";
}

const std::vector<std::string> kTwo = {"mlx5_0,mlx5_core,0000:3b:00.0", "mlx5_1,mlx5_core,0000:86:00.0"};
/// One of everything: ConnectX-4 and -3, Broadcom, EFA, Intel, HiSilicon, and one in software.
const std::vector<std::string> kMixed = {"bnxt_re0,bnxt_en,0000:01:00.0,eth",
                                         "rdmap0s6,efa,0000:00:06.0,eth",
                                         "mlx5_0,mlx5_core,0000:3b:00.0",
                                         "irdma0,ice,0000:02:00.0,eth",
                                         "mlx4_0,mlx4_core,0000:c1:00.0",
                                         "hns_0,hns3,0000:7d:00.0,eth",
                                         "rxe0,-,-,eth"};

}  // namespace

TEST_CASE("without a word about them adapters stay as /dev and /sys have them") {
  Machine machine(kTwo);
  CHECK(Machine::text(hca::edits_by_variable({machine.roots, {}, {}, false, machine.log})).empty());
  for (const char* value : {"", "void", "none"}) {
    INFO(value);
    CHECK(machine.plan(value).empty());
    CHECK(machine.plan_of_image(value).empty());
  }
  CHECK(machine.log.messages.empty());
}

TEST_CASE("all, one, some: the classes show these and nothing else, /sys/devices stays whole") {
  Machine machine(kTwo);
  const std::string both =
      kHidden + uverbs(0) + uverbs(1) + links("mlx5_0", 0, "0000:3b:00.0") + links("mlx5_1", 1, "0000:86:00.0");
  CHECK(machine.plan("all") == both);
  CHECK(machine.plan("0,1") == both);
  CHECK(machine.plan("0 1 0") == both);
  CHECK(machine.plan("1") == kHidden + uverbs(1) + links("mlx5_1", 1, "0000:86:00.0"));
  CHECK(machine.plan(",") == kHidden);
  CHECK(machine.plan_of_image("all") == both);
  CHECK(machine.log.messages.empty());
}

TEST_CASE("the host's word comes before the image's, also an empty one") {
  Machine machine(kTwo);
  Environment host;
  Environment image;
  image.set("MELLANOX_VISIBLE_DEVICES", "all");
  host.set("MELLANOX_VISIBLE_DEVICES", "1");
  CHECK(Machine::text(hca::edits_by_variable({machine.roots, host, image, false, machine.log})) ==
        kHidden + uverbs(1) + links("mlx5_1", 1, "0000:86:00.0"));
  host.set("MELLANOX_VISIBLE_DEVICES", "");
  CHECK(Machine::text(hca::edits_by_variable({machine.roots, host, image, false, machine.log})).empty());
}

TEST_CASE("a wrong index is named as enroot does, with what there is") {
  Machine machine(kTwo);
  for (const char* value : {"2", "0,2", "all,2", "-1", "mlx5_0", "0x1", "18446744073709551616"}) {
    INFO(value);
    const std::string wrong = std::string(value).starts_with("0,")    ? "2"
                              : std::string(value).starts_with("all") ? "all"
                                                                      : value;
    CHECK(machine.plan(value) ==
          "error: Unknown MELLANOX device id: " + wrong +
              " [gpu-request]\nhint: this node has 0: mlx5_0 (0000:3b:00.0), 1: mlx5_1 (0000:86:00.0)\n");
  }
  CHECK_THAT(machine.plan("\x1b[2J"), Catch::Contains("Unknown MELLANOX device id: \\x1b[2J"));
}

TEST_CASE("indices are enroot's for mlx4 and mlx5, whatever order the kernel found them in; all others come after") {
  CHECK(Machine({"a,mlx5_core,0000:86:00.0", "b,mlx5_core,0000:3b:00.1", "c,mlx5_core,0000:3b:00.0",
                 "d,mlx4_core,0000:ff:00.0"})
            .order() == "d c b a");
  Machine machine(kMixed);
  CHECK(machine.order() == "mlx4_0 mlx5_0 rxe0 bnxt_re0 rdmap0s6 hns_0 irdma0");
  CHECK(machine.plan("1") == kHidden + uverbs(2) + links("mlx5_0", 2, "0000:3b:00.0"));
  CHECK(machine.plan("4") == kHidden + uverbs(1) + links("rdmap0s6", 1, "0000:00:06.0"));
}

TEST_CASE("adapters of every driver are injected by all, software ones too") {
  Machine machine(kMixed);
  CHECK(machine.plan("all") ==
        kHidden + uverbs(4) + uverbs(2) + uverbs(6) + uverbs(0) + uverbs(1) + uverbs(5) + uverbs(3) +
            links("mlx4_0", 4, "0000:c1:00.0") + links("mlx5_0", 2, "0000:3b:00.0") +
            "link /sys/class/infiniband/rxe0 -> ../../devices/virtual/infiniband/rxe0\n"
            "link /sys/class/infiniband_verbs/uverbs6 -> ../../devices/virtual/infiniband_verbs/uverbs6\n" +
            links("bnxt_re0", 0, "0000:01:00.0") + links("rdmap0s6", 1, "0000:00:06.0") +
            links("hns_0", 5, "0000:7d:00.0") + links("irdma0", 3, "0000:02:00.0"));
}

TEST_CASE("verbs without an InfiniBand device shift nobody's name: refused by index, left out of all") {
  Machine machine(
      {"mlx5_0,mlx5_core,0000:3b:00.0", "mlx5_1,mlx5_core,0000:3b:00.2,vf,no-ib", "mlx5_2,mlx5_core,0000:86:00.0"});
  CHECK(machine.plan("2") == kHidden + uverbs(2) + links("mlx5_2", 2, "0000:86:00.0"));
  CHECK(machine.plan("1") ==
        "error: network adapter mlx5_1 (0000:3b:00.2): no InfiniBand device mlx5_1 is to be seen for it: it is a "
        "representor, or belongs to another network namespace [gpu-request]\n");
  CHECK(machine.plan("all") ==
        kHidden + uverbs(0) + uverbs(2) + links("mlx5_0", 0, "0000:3b:00.0") + links("mlx5_2", 2, "0000:86:00.0"));
  CHECK(machine.log.count(LogLevel::info, "leaving out network adapter mlx5_1 (0000:3b:00.2)") == 1);
}

TEST_CASE("an InfiniBand device without verbs counts for nothing") {
  Machine machine({"mlx5_0,mlx5_core,0000:3b:00.0,no-verbs", "mlx5_1,mlx5_core,0000:86:00.0"});
  CHECK(machine.plan("0") == kHidden + uverbs(0) + links("mlx5_1", 0, "0000:86:00.0"));
}

TEST_CASE("virtual functions count like others; subfunctions come after those that enroot counts") {
  Machine machine(
      {"mlx5_0,mlx5_core,0000:3b:00.0", "mlx5_2,mlx5_core,0000:3b:00.0,sf=4", "mlx5_1,mlx5_core,0000:3b:00.2,vf"});
  CHECK(machine.order() == "mlx5_0 mlx5_1 mlx5_2");
  const std::vector<hca::Adapter> all = machine.adapters();
  CHECK_FALSE(all[0].virtual_function);
  CHECK(all[1].virtual_function);
  CHECK(all[2].pci_address == "0000:3b:00.0");
  CHECK(all[2].driver == "mlx5_core");
  const std::string directory = "../../devices/pci0000:00/0000:00:01.0/0000:3b:00.0/mlx5_core.sf.4/";
  CHECK(machine.plan("2") == kHidden + uverbs(1) + "link /sys/class/infiniband/mlx5_2 -> " + directory +
                                 "infiniband/mlx5_2\nlink /sys/class/infiniband_verbs/uverbs1 -> " + directory +
                                 "infiniband_verbs/uverbs1\n");
}

TEST_CASE("a node that a pod or udev did not make: refused by index, left out of all") {
  Machine machine({"mlx5_0,mlx5_core,0000:3b:00.0", "mlx5_1,mlx5_core,0000:86:00.0,no-node"});
  CHECK(machine.plan("1") ==
        "error: network adapter mlx5_1 (0000:86:00.0): /dev/infiniband/uverbs1 does not exist [gpu-request]\n");
  CHECK(machine.plan("all") == kHidden + uverbs(0) + links("mlx5_0", 0, "0000:3b:00.0"));
}

TEST_CASE("a node to which the user has no access is left out of all, and said so by index") {
  Machine machine(kTwo);
  REQUIRE(chmod(machine.path("/dev/infiniband/uverbs0").c_str(), 0) == 0);
  test::give_to_user(machine.dir.path());
  CHECK(test::as_user([&]() -> Result<void> {
          EXPECT(machine.plan("all") == kHidden + uverbs(1) + links("mlx5_1", 1, "0000:86:00.0"));
          EXPECT(machine.plan("0") ==
                 "error: network adapter mlx5_0 (0000:3b:00.0): no access to /dev/infiniband/uverbs0: Permission "
                 "denied [gpu-request]\n");
          return {};
        }) == "");
}

TEST_CASE("no adapter on the node: the image may ask, the job may not") {
  Machine machine({});
  CHECK(machine.plan_of_image("all").empty());
  CHECK(machine.plan_of_image("3").empty());
  CHECK(machine.log.count(LogLevel::info, "and this node has none") == 2);
  for (const char* value : {"all", "0"})
    CHECK(machine.plan(value) == std::string("error: MELLANOX_VISIBLE_DEVICES=") + value +
                                     ": this node has no network adapter with verbs that can be used [gpu-request]\n"
                                     "hint: situla doctor shows the adapters there are\n");
}

TEST_CASE("old kernels have infiniband_cm; some have no infiniband_mad") {
  Machine old({"--cm", "mlx5_0,mlx5_core,0000:3b:00.0"});
  const std::string plan = old.plan("all");
  CHECK_THAT(plan, Catch::Contains("cover /sys/class/infiniband_cm [nosuid, nodev, noexec, if possible]\n") &&
                       Catch::Contains("mount /sys/class/infiniband_cm/abi_version on "
                                       "/sys/class/infiniband_cm/abi_version [ro, nosuid, nodev, noexec, "
                                       "if possible]\n"));
  Machine without({"--no-mad", "mlx5_0,mlx5_core,0000:3b:00.0"});
  CHECK(without.plan("all") ==
        "cover /sys/class/infiniband [nosuid, nodev, noexec]\n"
        "cover /sys/class/infiniband_verbs [nosuid, nodev, noexec]\n"
        "mount /sys/class/infiniband_verbs/abi_version on /sys/class/infiniband_verbs/abi_version "
        "[ro, nosuid, nodev, noexec]\n"
        "device /dev/infiniband/rdma_cm on /dev/infiniband/rdma_cm (c 10:56)\n" +
            uverbs(0) + links("mlx5_0", 0, "0000:3b:00.0"));
}

TEST_CASE("a node without rdma_cm gives its adapters, with a warning") {
  Machine machine({"--no-rdma-cm", "mlx5_0,mlx5_core,0000:3b:00.0"});
  const std::string plan = machine.plan("all");
  CHECK_THAT(plan, !Catch::Contains("rdma_cm") && Catch::Contains(uverbs(0)));
  CHECK(machine.log.count(LogLevel::warning, "rdma_ucm") == 1);
}

TEST_CASE("who wants the host's verbs libraries is told that they are not mounted, and gets the adapters") {
  Machine machine({"mlx5_0,mlx5_core,0000:3b:00.0"});
  const std::string plan = machine.plan("all");
  CHECK(machine.log.messages.empty());
  Environment host;
  host.set("MELLANOX_VISIBLE_DEVICES", "all");
  host.set("MELLANOX_MOUNT_DRIVER", "1");
  CHECK(Machine::text(hca::edits_by_variable({machine.roots, host, {}, false, machine.log})) == plan);
  CHECK(machine.log.count(LogLevel::warning, "MELLANOX_MOUNT_DRIVER has no effect") == 1);
}

TEST_CASE("only root of the node gets umad and issm, those of the chosen adapters") {
  Machine machine({"mlx5_0,mlx5_core,0000:3b:00.0,ports=2", "mlx5_1,mlx5_core,0000:86:00.0"});
  CHECK_THAT(machine.plan("all"), !Catch::Contains("umad") && !Catch::Contains("issm"));
  const std::string directory = "../../devices/pci0000:00/0000:00:01.0/0000:86:00.0/infiniband_mad/";
  CHECK(machine.plan("1", true) == kHidden + uverbs(1) +
                                       "device /dev/infiniband/issm2 on /dev/infiniband/issm2 (c 231:66)\n"
                                       "device /dev/infiniband/umad2 on /dev/infiniband/umad2 (c 231:2)\n" +
                                       links("mlx5_1", 1, "0000:86:00.0") + "link /sys/class/infiniband_mad/issm2 -> " +
                                       directory + "issm2\nlink /sys/class/infiniband_mad/umad2 -> " + directory +
                                       "umad2\n");
  const std::string first = machine.plan("0", true);
  for (const char* node : {"umad0", "umad1", "issm0", "issm1"}) CHECK_THAT(first, Catch::Contains(node));
}

TEST_CASE("devices beneath another root: its nodes go to the usual places, their numbers are anybody's") {
  Machine machine({"mlx5_0,mlx5_core,0000:3b:00.0"});
  machine.roots.device_path = "/srv/devices";
  CHECK(machine.plan_of_names({"situla.dev/hca=mlx5_0"}) ==
        "device /srv/devices/dev/infiniband/uverbs0 on /dev/infiniband/uverbs0\n"
        "device /srv/devices/dev/infiniband/rdma_cm on /dev/infiniband/rdma_cm\n");
}

TEST_CASE("names of --container-devices: name, index, address, all; sysfs stays as it is") {
  Machine machine(kMixed);
  const std::string rdma_cm = "device /dev/infiniband/rdma_cm on /dev/infiniband/rdma_cm (c 10:56)\n";
  CHECK(machine.plan_of_names({}).empty());
  CHECK(machine.plan_of_names({"situla.dev/hca=mlx5_0"}) == uverbs(2) + rdma_cm);
  CHECK(machine.plan_of_names({"situla.dev/hca=1"}) == uverbs(2) + rdma_cm);
  CHECK(machine.plan_of_names({"situla.dev/hca=0000:01:00.0", "situla.dev/hca=bnxt_re0", "situla.dev/hca=irdma0"}) ==
        uverbs(0) + uverbs(3) + rdma_cm);
  CHECK(machine.plan_of_names({"situla.dev/hca=all"}) ==
        uverbs(4) + uverbs(2) + uverbs(6) + uverbs(0) + uverbs(1) + uverbs(5) + uverbs(3) + rdma_cm);
  CHECK_THAT(machine.plan_of_names({"situla.dev/hca=mlx5_7"}),
             Catch::Contains("error: unknown network adapter situla.dev/hca=mlx5_7 [gpu-request]\n") &&
                 Catch::Contains("hint: this node has 0: mlx4_0 (0000:c1:00.0)") && Catch::Contains("2: rxe0, "));
  CHECK_THAT(Machine({}).plan_of_names({"situla.dev/hca=all"}),
             Catch::Contains("error: situla.dev/hca=all: this node has no network adapter"));
  CHECK(hca::is_device("situla.dev/hca=mlx5_0"));
  CHECK_FALSE(hca::is_device("situla.dev/hcax=0"));
  CHECK_FALSE(hca::is_device("nvidia.com/gpu=0"));
}

TEST_CASE("doctor sees the ports") {
  Machine machine({"mlx5_0,mlx5_core,0000:3b:00.0,ports=2", "bnxt_re0,bnxt_en,0000:01:00.0,eth,down"});
  const std::vector<hca::Adapter> all = machine.adapters();
  const std::vector<hca::Port> first = hca::ports(machine.roots.devices, all[0]);
  REQUIRE(first.size() == 2);
  CHECK(first[1].number == "2");
  CHECK(first[1].link_layer == "InfiniBand");
  CHECK(first[1].state == "ACTIVE");
  CHECK(first[1].rate == "400 Gb/sec (4X NDR)");
  CHECK(hca::ports(machine.roots.devices, all[1])[0].state == "DOWN");
}

TEST_CASE("a uevent file is text: nothing in it runs, and nothing leads out of /dev") {
  const test::TempDir place;
  Machine machine({"mlx5_0,mlx5_core,0000:3b:00.0,uevent=MAJOR=231\\nMINOR=192\\nDEVNAME=$(touch " + (place / "ran") +
                       ")\\n: ; touch " + (place / "ran"),
                   "mlx5_1,mlx5_core,0000:86:00.0,uevent=DEVNAME=../../etc/shadow",
                   "mlx5_2,mlx5_core,0000:87:00.0,uevent=DEVNAME=/etc/shadow",
                   "mlx5_3,mlx5_core,0000:88:00.0,uevent=garbage",
                   "mlx5_4,mlx5_core,0000:89:00.0,uevent=MAJOR=99999999999\\nMINOR=-1\\nDEVNAME=infiniband/uverbs4"});
  CHECK_THAT(machine.plan("0"), Catch::Contains("error: network adapter mlx5_0 (0000:3b:00.0): /dev/$(touch "));
  for (const char* index : {"1", "2", "3", "4"}) {
    const std::string node = std::string("/dev/infiniband/uverbs") + index;
    CHECK_THAT(machine.plan(index), Catch::Contains("device " + node + " on " + node + "\n"));
  }
  CHECK_FALSE(std::filesystem::exists(place / "ran"));
}

TEST_CASE("links of sysfs that lead elsewhere are no adapters, and its files are read up to a page") {
  Machine machine(kTwo);
  namespace fs = std::filesystem;
  fs::create_symlink("/etc", machine.path("/sys/class/infiniband_verbs/uverbs7"));
  fs::create_symlink("../../../../etc", machine.path("/sys/class/infiniband_verbs/uverbs8"));
  fs::create_symlink("../../devices/gone/infiniband_verbs/uverbs9",
                     machine.path("/sys/class/infiniband_verbs/uverbs9"));
  fs::create_directory(machine.path("/sys/class/infiniband_verbs/uverbs6"));
  CHECK(machine.plan("0") == kHidden + uverbs(0) + links("mlx5_0", 0, "0000:3b:00.0"));
  const std::vector<hca::Adapter> all = machine.adapters();
  REQUIRE(all.size() == 3);
  CHECK(all[2].verbs == "uverbs9");
  CHECK_FALSE(all[2].obstacle.empty());
  machine.dir.write("machine/sys/class/infiniband_verbs/uverbs0/ibdev", std::string(1 << 20, 'x'));
  CHECK(machine.adapters()[0].name.empty());
}

TEST_CASE("fields of uevent files") {
  using hca::parse_uevent;
  CHECK(parse_uevent("MAJOR=231\nMINOR=192\nDEVNAME=infiniband/uverbs0\n") ==
        hca::Uevent{"", "infiniband/uverbs0", DeviceNumber{'c', 231, 192}});
  CHECK(parse_uevent("NAME=mlx5_0") == hca::Uevent{"mlx5_0", "", std::nullopt});
  CHECK(parse_uevent("DRIVER=x\nPCI_ID=15B3:1021\nNAME=a=b") == hca::Uevent{"a=b", "", std::nullopt});
  for (const char* text : {"", "\n\n", "=", "NAME", "NAME=", "NAME=a/b", "NAME=..", "NAME=a\tb",
                           "DEVNAME=", "DEVNAME=/", "DEVNAME=a//b", "DEVNAME=a/../b", "DEVNAME=./a", "MAJOR=1",
                           "MINOR=2", "MAJOR=1\nMINOR=x", "MAJOR=4294967296\nMINOR=1", " NAME=x", "name=x"}) {
    INFO(text);
    CHECK(parse_uevent(text) == hca::Uevent{});
  }
  CHECK(parse_uevent(std::string("NAME=a\0b\n", 9)) == hca::Uevent{});
  CHECK(parse_uevent("NAME=" + std::string(300, 'n')) == hca::Uevent{});
}
