// Which nodes does a container get of AMD's and Intel's GPUs? Plans for machines of tests/gpu/make-drm-root.
// GPU.md 5.3.
#include "hooks/inject/drm/drm.hpp"

#include <cstdlib>
#include <filesystem>
#include <map>

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/base/text.hpp"
#include "hooks/inject/drm/render_gpus.hpp"
#include "tests/support/memory_log.hpp"
#include "tests/support/plan_text.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;
using drm::Access;
using gpu::Asker;
using gpu::kAmd;
using gpu::kIntel;

namespace {

/// A machine with these GPUs, and a container.
struct Machine {
  explicit Machine(const std::vector<std::string>& words) : roots(make(words)), root(*RootDir::open(dir / "root")) {}

  HostRoots make(const std::vector<std::string>& words) const {
    std::filesystem::create_directories(dir / "root/dev");
    std::string command = SITULA_SOURCE_DIR "/tests/gpu/make-drm-root " + shell_quote(dir / "machine");
    for (const std::string& word : words) command += " " + shell_quote(word);
    REQUIRE(std::system(command.c_str()) == 0);
    return {"/", "/", *RootDir::open("/"), *RootDir::open(dir / "machine")};
  }
  /// The container has the machine's /dev.
  void share_dev() { root = *RootDir::open(dir / "machine"); }

  std::string plan(const std::vector<drm::Wanted>& wanted, bool hide = true) {
    const auto access = [&](const std::string& path) {
      const auto found = answers.find(path);
      if (found != answers.end()) return found->second;
      return roots.devices.exists(path) ? Access::granted : Access::missing;
    };
    const auto edits = drm::edits(wanted, {roots, root, hide, access, log});
    return edits ? test::without_origins(describe(*edits)) : "error: " + edits.error().text() + "\n";
  }
  std::string plan(const gpu::Vendor& vendor, const std::string& names, Asker asker = Asker::job) {
    gpu::Request request{asker, {}, {}};
    for (const std::string_view name : gpu::list_items(names)) request.devices.emplace_back(name);
    return plan({{&vendor, request, "AMD_VISIBLE_DEVICES"}});
  }

  test::TempDir dir;
  HostRoots roots;
  RootDir root;
  std::map<std::string, Access> answers;  ///< of the kernel, instead of what the node's existence says
  test::MemoryLog log;
};

std::string node(const std::string& path, int major, int minor, const std::string& words = "") {
  return "device " + path + " on " + path + " (c " + std::to_string(major) + ":" + std::to_string(minor) + ")" + words +
         "\n";
}
std::string card(int number) {
  return node("/dev/dri/card" + std::to_string(number), 226, number, " [if possible]");
}
std::string render(int number) {
  return node("/dev/dri/renderD" + std::to_string(number), 226, number);
}
/// The same where only Slurm asks.
std::string optional(const std::string& step) {
  return step.substr(0, step.size() - 1) + " [if possible]\n";
}
/// One that stays when others are hidden, whose number nobody looks up.
std::string kept(const std::string& name) {
  return "device /dev/dri/" + name + " on /dev/dri/" + name + " [if possible]\n";
}
std::string by_path(const std::string& name, const std::string& target) {
  return "link /dev/dri/by-path/" + name + " -> ../" + target + "\n";
}
std::string links(const std::string& name, int card_number, int render_number) {
  return by_path(name + "-card", "card" + std::to_string(card_number)) +
         by_path(name + "-render", "renderD" + std::to_string(render_number));
}
const std::string kKfdNode = node("/dev/kfd", 234, 0);
const std::string kCover = "cover /dev/dri [nosuid, nodev, noexec]\n";

const std::vector<std::string> kFourAmd = {"aspeed,0000:02:00.0", "amd,0000:05:00.0,id=a1", "amd,0000:26:00.0,id=a2",
                                           "amd,0000:85:00.0,id=2f1b5c9d7e3a4c10", "amd,0000:c5:00.0"};
const std::vector<std::string> kTwoIntel = {"intel,0000:18:00.0", "intel,0000:2a:00.0"};

}  // namespace

TEST_CASE("GPUs are counted as the vendor's runtime does, with their nodes, and nobody else's are") {
  const Machine machine({"intel,0000:00:02.0", "amd,0000:c5:00.0,kfd=4", "amd,0000:05:00.0,kfd=1,partitions=2,id=ff",
                         "aspeed,0000:02:00.0", "nvidia,0000:41:00.0", "amd,0000:07:00.0,no-compute",
                         "intel,10000:00:02.0,no-card"});
  std::string text;
  for (const drm::RenderGpu& gpu : drm::render_gpus(machine.roots.devices))
    text += std::string(gpu.vendor->name) + " " + gpu.address + " " + gpu.render.path.substr(9) + " " +
            (gpu.card ? gpu.card->path.substr(9) : "-") + " " + gpu.unique_id + "\n";
  CHECK(text ==
        "AMD 0000:05:00.0 renderD130 card2 GPU-00000000000000ff\n"
        "AMD amdgpu_xcp_0 renderD131 - GPU-00000000000000ff\n"
        "AMD 0000:c5:00.0 renderD129 card1 \n"
        "AMD 0000:07:00.0 renderD133 card5 \n"
        "Intel 0000:00:02.0 renderD128 card0 \n"
        "Intel 10000:00:02.0 renderD134 - \n");
  CHECK(drm::has_gpus(machine.roots.devices, kAmd));
  CHECK_FALSE(drm::has_gpus(Machine(kTwoIntel).roots.devices, kAmd));
  CHECK(drm::render_gpus(Machine({}).roots.devices).empty());
}

TEST_CASE("what the kernel never writes is left out") {
  const Machine machine({"amd,0000:05:00.0", "amd,0000:26:00.0"});
  machine.dir.write("machine/sys/devices/virtual/kfd/kfd/topology/nodes/1/properties",
                    "drm_render_minor 340282366920938463463374607431768211456\n\nx\nunique_id -1\n");
  machine.dir.write("machine/sys/devices/virtual/kfd/kfd/topology/nodes/x/properties", "drm_render_minor 129\n");
  machine.dir.write("machine/sys/class/drm/renderD777/device/vendor", "0x1002\n");  // no link to a device
  machine.dir.write("machine/sys/devices/pci0000:00/0000:00:01.0/0000:05:00.0/drm/renderD128/dev", "226\n");
  const auto gpus = drm::render_gpus(machine.roots.devices);
  REQUIRE(gpus.size() == 2);
  CHECK(gpus[0].address == "0000:26:00.0");  // the one that KFD knows
  CHECK_FALSE(gpus[1].render.number);
}

TEST_CASE("a container with a /dev of its own gets nodes and links of the job's GPUs") {
  Machine machine(kFourAmd);
  CHECK(machine.plan(kAmd, "0") == kKfdNode + render(128) + card(1) + links("pci-0000:05:00.0", 1, 128));
  CHECK(machine.plan(kAmd, "2") == machine.plan(kAmd, "renderD130"));
  for (const char* name : {"0000:85:00.0", "0000:85:00.0,2", "GPU-2f1b5c9d7e3a4c10", "gpu-2F1B5C9D7E3A4C10",
                           "0x2f1b5c9d7e3a4c10", "2-2"}) {
    INFO(name);
    CHECK(machine.plan(kAmd, name) == machine.plan(kAmd, "2"));
  }
  CHECK(machine.plan(kAmd, "all") == machine.plan(kAmd, "0-3"));
  CHECK(machine.plan(kAmd, "ALL", Asker::image) == machine.plan(kAmd, "0,1,2,3"));
  CHECK_THAT(machine.plan(kAmd, "all"), Catch::Contains(render(131)) && !Catch::Contains("card0"));
  CHECK(machine.plan(kAmd, "").empty());
  CHECK(machine.log.messages.empty());
  for (const char* wrong : {"4", "2-4", "3-2", "-1", "1-", "0x", "GPU-", "renderD12", "0000:02:00.0", "card1",
                            "18446744073709551615", "0-18446744073709551615"}) {
    INFO(wrong);
    CHECK_THAT(machine.plan(kAmd, wrong), Catch::StartsWith("error: device error: " + std::string(wrong)));
  }
}

TEST_CASE("the device cgroup has the last word, by the render node or by the card's") {
  Machine amd(kFourAmd);
  for (const char* path : {"/dev/dri/renderD128", "/dev/dri/renderD130"}) amd.answers[path] = Access::forbidden;
  CHECK(amd.plan(kAmd, "all", Asker::image) == kKfdNode + render(129) + card(2) + render(131) + card(4) +
                                                   links("pci-0000:26:00.0", 2, 129) +
                                                   links("pci-0000:c5:00.0", 4, 131));
  CHECK_THAT(amd.plan(kAmd, "1"), Catch::Contains(render(131)) && !Catch::Contains("renderD129"));
  CHECK(amd.plan(kAmd, "2") ==
        "error: device error: 2: unknown device [gpu-request]\n"
        "hint: this job may use 0 = 0000:26:00.0 (renderD129), 1 = 0000:c5:00.0 (renderD131); a job's GPUs are "
        "numbered from 0\n");
  // Slurm's AutoDetect=oneapi knows GPUs by their cards: the render node can be opened all the same.
  Machine intel(kTwoIntel);
  intel.answers["/dev/dri/card0"] = Access::forbidden;
  CHECK(intel.plan(kIntel, "all", Asker::image) == render(129) + card(1) + links("pci-0000:2a:00.0", 1, 129));
}

TEST_CASE("who may not open cards computes without") {
  Machine machine(kTwoIntel);
  for (const char* path : {"/dev/dri/card0", "/dev/dri/card1"}) machine.answers[path] = Access::denied;
  CHECK(machine.plan(kIntel, "1") == render(129) + by_path("pci-0000:2a:00.0-render", "renderD129"));
  CHECK(machine.log.messages.empty());
}

TEST_CASE("in the host's /dev, a node of others that could be opened is hidden, and nothing else") {
  Machine machine({"intel,0000:18:00.0", "intel,0000:2a:00.0", "aspeed,0000:02:00.0", "nvidia,0000:41:00.0",
                   "nvidia,0000:42:00.0"});
  machine.share_dev();
  machine.answers["/dev/dri/card0"] = Access::forbidden;
  machine.answers["/dev/dri/renderD131"] = Access::forbidden;
  CHECK(machine.plan(kIntel, "all", Asker::image) ==
        kCover + render(129) + card(1) + kept("card2") + kept("card3") + kept("card4") + kept("renderD130") +
            by_path("pci-0000:02:00.0-card", "card2") + links("pci-0000:2a:00.0", 1, 129) +
            links("pci-0000:41:00.0", 3, 130) + by_path("pci-0000:42:00.0-card", "card4"));
  // Nothing to hide, nothing to do: /dev has it all.
  machine.answers.clear();
  CHECK(machine.plan(kIntel, "all", Asker::image) == render(128) + card(0) + render(129) + card(1));
  machine.answers = {{"/dev/dri/card0", Access::forbidden}, {"/dev/dri/renderD128", Access::forbidden}};
  CHECK(machine.plan(kIntel, "all", Asker::image) == render(129) + card(1));
}

TEST_CASE("hide_gpus = false leaves /dev/dri alone") {
  Machine machine(kTwoIntel);
  machine.share_dev();
  gpu::Request request{Asker::job, {"1"}, {}};
  CHECK(machine.plan({{&kIntel, request, "intel.com/gpu=1"}}, false) == render(129) + card(1));
  CHECK_THAT(machine.plan({{&kIntel, request, "intel.com/gpu=1"}}, true), Catch::StartsWith(kCover));
}

TEST_CASE("both vendors at once: each has its own word, and one who does not ask keeps what is there") {
  Machine machine({"amd,0000:05:00.0", "amd,0000:26:00.0", "intel,0000:00:02.0"});
  machine.share_dev();
  const gpu::Request all{Asker::slurm, {"all"}, {}}, one{Asker::job, {"1"}, {}};
  const std::string both = machine.plan({{&kAmd, one, "AMD_VISIBLE_DEVICES"}, {&kIntel, all, "GPUs of the job"}});
  CHECK_THAT(both, Catch::StartsWith(kCover) && Catch::Contains("renderD129") && Catch::Contains("renderD130") &&
                       !Catch::Contains("renderD128"));
  const std::string only_amd = machine.plan({{&kAmd, one, "AMD_VISIBLE_DEVICES"}});
  CHECK_THAT(only_amd, Catch::StartsWith(kCover) && Catch::Contains(kept("renderD130")));
  CHECK(machine.plan(std::vector<drm::Wanted>()).empty());
}

TEST_CASE("what a job refuses is hidden in the host's /dev, and missed by nobody") {
  Machine machine({"amd,0000:05:00.0", "amd,0000:26:00.0", "aspeed,0000:02:00.0"});
  for (const Asker asker : {Asker::nobody, Asker::job}) {
    gpu::Request request{asker, {}, {}};
    request.refused = true;
    CHECK(machine.plan({{&kAmd, request, "AMD_VISIBLE_DEVICES"}}).empty());
    CHECK(machine.plan({{&kIntel, request, "AMD_VISIBLE_DEVICES"}}).empty());
  }
  machine.share_dev();
  gpu::Request request;
  request.refused = true;
  CHECK(machine.plan({{&kAmd, request, "AMD_VISIBLE_DEVICES"}}) ==
        "cover /dev/dri [nosuid, nodev, noexec, if possible]\n" + kept("card2") +
            by_path("pci-0000:02:00.0-card", "card2"));
  CHECK(machine.plan({{&kAmd, request, "AMD_VISIBLE_DEVICES"}}, false).empty());
  // What the step may not open anyway needs no cover.
  for (const char* name : {"card0", "card1", "renderD128", "renderD129"})
    machine.answers[std::string("/dev/dri/") + name] = Access::forbidden;
  CHECK(machine.plan({{&kAmd, request, "AMD_VISIBLE_DEVICES"}}).empty());
  CHECK(machine.log.messages.empty());
}

TEST_CASE("a node without such GPUs: an error for the job that asks, and for nobody else") {
  Machine machine(kTwoIntel);
  CHECK(machine.plan(kAmd, "all") ==
        "error: AMD_VISIBLE_DEVICES: this node has no AMD GPU [gpu-driver]\n"
        "hint: ask Slurm for a node with such GPUs, or start without them: AMD_VISIBLE_DEVICES=void\n");
  CHECK(machine.plan(kAmd, "all", Asker::slurm).empty());
  CHECK(machine.log.messages.empty());
  CHECK(machine.plan(kAmd, "all", Asker::image).empty());
  REQUIRE(machine.log.messages.size() == 1);
  CHECK_THAT(machine.log.messages.front().text, Catch::Contains("The image asks for AMD GPUs, and this node has none"));
}

TEST_CASE("GPUs that this user may not open are named with what to do, those of other jobs are not") {
  Machine machine(kFourAmd);
  for (const int minor : {128, 129, 130, 131})
    machine.answers["/dev/dri/renderD" + std::to_string(minor)] = Access::forbidden;
  CHECK(machine.plan(kAmd, "all", Asker::slurm).empty());
  CHECK(machine.log.messages.empty());
  CHECK(machine.plan(kAmd, "all").empty());
  REQUIRE(machine.log.messages.size() == 1);
  CHECK_THAT(machine.log.messages.back().text, Catch::Contains("This job may use none of the node's 4 AMD GPUs"));
  CHECK_THAT(machine.plan(kAmd, "0"), Catch::Contains("this job may use no GPU of this node; ask Slurm for some"));
  machine.answers["/dev/dri/renderD129"] = Access::denied;
  CHECK(machine.plan(kAmd, "all", Asker::slurm).empty());
  CHECK_THAT(machine.log.messages.back().text,
             Catch::Contains("their nodes in /dev/dri do not admit this user") && Catch::Contains("render or video"));
}

TEST_CASE("where only Slurm asks, nothing ends a start, and nothing is done where the GPUs may be another vendor's") {
  Machine machine({"amd,0000:05:00.0", "amd,0000:26:00.0"});
  machine.share_dev();
  machine.answers["/dev/dri/renderD128"] = Access::forbidden;
  CHECK(machine.plan(kAmd, "all", Asker::slurm) == "cover /dev/dri [nosuid, nodev, noexec, if possible]\n" +
                                                       optional(kKfdNode) + optional(render(129)) + card(1) +
                                                       links("pci-0000:26:00.0", 1, 129));
  for (const char* other : {"proc/driver/nvidia/version", ""}) {
    Machine mixed(other[0] == '\0' ? std::vector<std::string>{"--no-kfd", "amd,0000:05:00.0", "intel,0000:00:02.0"}
                                   : std::vector<std::string>{"--no-kfd", "amd,0000:05:00.0"});
    if (other[0] != '\0') mixed.dir.write(std::string("machine/") + other, "NVRM version: 580\n");
    CHECK(mixed.plan(kAmd, "all", Asker::slurm).empty());
    mixed.share_dev();
    mixed.answers["/dev/dri/card0"] = Access::forbidden;
    CHECK(mixed.plan(kAmd, "all", Asker::slurm).empty());
    mixed.answers.clear();
    mixed.answers["/dev/dri/renderD128"] = Access::denied;
    CHECK(mixed.plan(kAmd, "all", Asker::slurm).empty());
    CHECK(mixed.log.messages.empty());
    CHECK(mixed.plan(kAmd, "all").empty());
    CHECK(mixed.log.count(LogLevel::warning, "do not admit this user") == 1);
  }
}

TEST_CASE("links are made only where something can be made") {
  Machine machine({"amd,0000:05:00.0"});
  const std::string dev = machine.dir / "root/dev";
  CHECK_THAT(machine.plan(kAmd, "0"), Catch::Contains("link /dev/dri/by-path/"));
  REQUIRE(chmod(dev.c_str(), 0555) == 0);
  if (access(dev.c_str(), W_OK) != 0) CHECK_THAT(machine.plan(kAmd, "0"), !Catch::Contains("link "));
  REQUIRE(chmod(dev.c_str(), 0755) == 0);
}

TEST_CASE("without /dev/kfd ROCm finds nothing, and the log says so") {
  Machine without({"--no-kfd", "amd,0000:05:00.0"});
  CHECK(without.plan(kAmd, "all") == render(128) + card(0) + links("pci-0000:05:00.0", 0, 128));
  REQUIRE(without.log.messages.size() == 1);
  CHECK_THAT(without.log.messages.back().text, Catch::Contains("This node has no /dev/kfd: ROCm finds no GPU"));
  Machine denied({"amd,0000:05:00.0"});
  denied.answers["/dev/kfd"] = Access::denied;
  CHECK_THAT(denied.plan(kAmd, "all"), !Catch::Contains("/dev/kfd"));
  CHECK_THAT(denied.log.messages.back().text, Catch::Contains("/dev/kfd does not admit this user"));
}
