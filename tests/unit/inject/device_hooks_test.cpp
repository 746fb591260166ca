// Which of the sources of GPUs is asked: the nodes, a specification, none? Settings, variables and names of devices, on
// machines of tests/gpu/make-drm-root.
#include <cstdlib>
#include <filesystem>

#include <sys/stat.h>

#include <catch2/catch.hpp>

#include "common/base/text.hpp"
#include "hooks/inject/hooks.hpp"
#include "tests/support/memory_log.hpp"
#include "tests/support/plan_text.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

/// A job on a machine with these GPUs, in a container with a /dev of its own.
struct Job {
  explicit Job(const std::vector<std::string>& gpus) {
    std::string command = SITULA_SOURCE_DIR "/tests/gpu/make-drm-root " + shell_quote(dir / "machine");
    for (const std::string& word : gpus) command += " " + shell_quote(word);
    REQUIRE(std::system(command.c_str()) == 0);
    std::filesystem::create_directories(dir / "root/dev");
    settings.device_root = dir / "machine";
    settings.cdi_directories = {dir / "cdi"};
  }
  /// A specification whose device "all" is one variable.
  void specify(const std::string& kind) const {
    dir.write("cdi/" + kind.substr(0, kind.find('/')) + ".json",
              R"({"cdiVersion": "0.6.0", "kind": ")" + kind +
                  R"(", "devices": [{"name": "all", "containerEdits": {"env": ["BY=specification"]}}]})");
    for (const std::string& path : {dir / "cdi", dir / ("cdi/" + kind.substr(0, kind.find('/')) + ".json")})
      REQUIRE(chmod(path.c_str(), path.ends_with(".json") ? 0644 : 0755) == 0);
  }

  Result<ContainerEdits> edits(BuiltInHook hook) {
    const RootDir root = *RootDir::open(dir / "root"), host_root = *RootDir::open("/");
    return run_built_in_hook(hook, {.root = root,
                                    .host_root = host_root,
                                    .host = host,
                                    .container = image,
                                    .user = user,
                                    .log = log,
                                    .device_settings = settings,
                                    .wanted_devices = wanted});
  }
  /// What it proposes, nodes by their names only.
  std::string run(BuiltInHook hook) {
    const auto edits = this->edits(hook);
    if (!edits) return "error: " + edits.error().message();
    std::vector<std::string> words;
    for (const auto& [name, value] : edits->environment.entries()) words.push_back(name + "=" + value);
    for (const MountStep& step : edits->mounts) words.push_back(step.target.substr(step.target.rfind('/') + 1));
    return join(words, " ");
  }
  std::string drm() { return run(BuiltInHook::drm); }
  std::string named() { return run(BuiltInHook::wanted_devices); }

  test::TempDir dir;
  DeviceSettings settings;
  Environment host, image;
  UserEntry user;
  std::vector<std::string> wanted;
  test::MemoryLog log;
};

const std::vector<std::string> kBoth = {"amd,0000:05:00.0", "amd,0000:26:00.0", "intel,0000:00:02.0"};
const std::string kAmd = "kfd renderD128 card0 renderD129 card1", kIntel = "renderD130 card2";

}  // namespace

TEST_CASE("GPUs come to a job that has some from Slurm, each vendor's as its setting says") {
  Job job({"amd,0000:05:00.0", "amd,0000:26:00.0"}), intel({"intel,0000:00:02.0"});
  CHECK(job.drm().empty());
  for (Job* each : {&job, &intel}) each->host.set("SLURM_STEP_GPUS", "0");
  CHECK(job.drm() == kAmd);
  CHECK(intel.drm() == "renderD128 card0");
  intel.settings.intel_gpu = GpuMode::off;
  CHECK(intel.drm().empty());
  // Whose they are, Slurm does not say.
  Job both(kBoth);
  both.host.set("SLURM_STEP_GPUS", "0");
  CHECK(both.drm().empty());
  both.image.set("AMD_VISIBLE_DEVICES", "all");
  CHECK(both.drm() == kAmd);
  CHECK(both.log.messages.empty());
  job.settings.amd_gpu = GpuMode::off;
  job.host.set("AMD_VISIBLE_DEVICES", "all");
  CHECK(job.drm().empty());
  CHECK(job.run(BuiltInHook::nvidia).empty());
  CHECK(job.log.messages.empty());
}

TEST_CASE("a driver_root that is not there is nothing to those who have no driver there") {
  Job job({"amd,0000:05:00.0"});
  job.settings.driver_root = job.dir / "nowhere";
  job.host.set("SLURM_STEP_GPUS", "0");
  CHECK(job.drm() == "kfd renderD128 card0");
  job.wanted = {"amd.com/gpu=0"};
  CHECK(job.named() == "kfd renderD128 card0");
  CHECK(job.log.messages.empty());
  // One situla.toml for all nodes; the image asks.
  job.host.unset("SLURM_STEP_GPUS");
  job.image.set("NVIDIA_VISIBLE_DEVICES", "all");
  job.settings.gpu = GpuMode::native;
  job.wanted = {};
  CHECK(job.run(BuiltInHook::nvidia).empty());
  CHECK(job.log.count(LogLevel::info, "this node has no driver for them") == 1);
}

TEST_CASE("where only Slurm asks, what goes wrong is for the log only") {
  Job job({"amd,0000:05:00.0"});
  job.settings.device_root = job.dir / "nowhere";
  job.host.set("SLURM_STEP_GPUS", "0");
  CHECK(job.drm().empty());
  CHECK(job.log.count(LogLevel::debug, "GPUs of the job: ") == 1);
  CHECK(job.log.messages.size() == 1);
  job.host.set("AMD_VISIBLE_DEVICES", "all");
  CHECK_THAT(job.drm(), Catch::Contains("error: ") && Catch::Contains("nowhere"));
}

TEST_CASE("where only Slurm asks, what a specification wants is done if possible") {
  Job job({"amd,0000:05:00.0"});
  job.settings.amd_gpu = GpuMode::cdi;
  job.settings.device_root = "/";
  job.specify("amd.com/gpu");
  job.dir.write("cdi/amd.com.json", R"({"cdiVersion": "0.6.0", "kind": "amd.com/gpu", "devices": [{"name": "all",
      "containerEdits": {"deviceNodes": [{"path": "/dev/null"}]}}]})");
  job.host.set("SLURM_STEP_GPUS", "0");
  auto edits = job.edits(BuiltInHook::drm);
  REQUIRE(edits);
  REQUIRE(edits->mounts.size() == 1);
  CHECK(edits->mounts.front().on_failure == OnFailure::warn);
  job.host.set("AMD_VISIBLE_DEVICES", "all");
  edits = job.edits(BuiltInHook::drm);
  REQUIRE(edits);
  REQUIRE(edits->mounts.size() == 1);
  CHECK(edits->mounts.front().on_failure == OnFailure::fail);
}

TEST_CASE("GPUs that a job refuses are hidden where the container has the node's /dev") {
  Job job({"amd,0000:05:00.0", "aspeed,0000:02:00.0"});
  std::filesystem::create_directories(job.dir / "root/dev/dri");
  for (const char* name : {"card0", "card1", "renderD128"}) job.dir.write(std::string("root/dev/dri/") + name, "");
  for (const char* refusal : {"void", "none", ""}) {
    INFO(refusal);
    job.host.set("AMD_VISIBLE_DEVICES", refusal);
    job.settings.amd_gpu = GpuMode::native;
    CHECK(job.drm() == "dri card1");
    job.settings.amd_gpu = GpuMode::cdi;
    CHECK(job.drm().empty());
  }
  job.host.unset("AMD_VISIBLE_DEVICES");
  job.image.set("AMD_VISIBLE_DEVICES", "void");
  job.settings.amd_gpu = GpuMode::native;
  CHECK(job.drm().empty());
  CHECK(job.log.messages.empty());
}

TEST_CASE("nonsense in an image's variable ends no start, nonsense in a job's does") {
  Job job({"amd,0000:05:00.0"});
  const std::string nonsense = "0,amd.com/gpu=1";
  job.image.set("AMD_VISIBLE_DEVICES", nonsense);
  CHECK(job.drm().empty());
  CHECK(job.log.count(LogLevel::info, "what the image says of GPUs is ignored: AMD_VISIBLE_DEVICES: ") == 1);
  CHECK(job.log.messages.size() == 1);
  job.host.set("SLURM_STEP_GPUS", "0");
  CHECK(job.drm() == "kfd renderD128 card0");
  job.host.set("AMD_VISIBLE_DEVICES", nonsense);
  CHECK_THAT(job.drm(), Catch::Contains("error: ") && Catch::Contains("cannot be asked for together"));
}

TEST_CASE("the job's variable, the image's, and what they say of CDI") {
  Job job(kBoth);
  job.image.set("AMD_VISIBLE_DEVICES", "1");
  CHECK(job.drm() == "kfd renderD129 card1");
  job.host.set("AMD_VISIBLE_DEVICES", "void");
  CHECK(job.drm().empty());
  job.host.set("AMD_VISIBLE_DEVICES", "amd.com/gpu=all");
  CHECK_THAT(job.drm(), Catch::Contains("error: built-in hook drm: ") && Catch::Contains("amd.com/gpu=all"));
  job.specify("amd.com/gpu");
  CHECK(job.drm() == "BY=specification");
  job.host.set("AMD_VISIBLE_DEVICES", "9");
  CHECK_THAT(job.drm(), Catch::Contains("device error: 9: unknown device"));
}

TEST_CASE("with the setting cdi a specification says it, and only a job that asks needs one") {
  Job job(kBoth);
  job.settings.amd_gpu = job.settings.intel_gpu = GpuMode::cdi;
  job.host.set("SLURM_STEP_GPUS", "0");
  CHECK(job.drm().empty());
  CHECK(job.log.messages.empty());
  job.image.set("AMD_VISIBLE_DEVICES", "all");
  CHECK(job.drm().empty());
  CHECK(job.log.count(LogLevel::info, "no CDI specification on this node has any of these") == 1);
  job.host.set("AMD_VISIBLE_DEVICES", "all");
  CHECK_THAT(job.drm(), Catch::Contains("error: ") && Catch::Contains("amd.com/gpu=all"));
  job.specify("amd.com/gpu");
  CHECK(job.drm() == "BY=specification");
}

TEST_CASE("names of devices work without a specification, where the node has such GPUs") {
  Job job(kBoth);
  job.wanted = {"amd.com/gpu=1", "intel.com/gpu=all"};
  CHECK(job.named() == "kfd renderD129 card1 " + kIntel);
  // Not twice.
  job.host.set("SLURM_STEP_GPUS", "0");
  CHECK(job.drm().empty());
  job.wanted = {"intel.com/gpu=0"};
  job.image.set("AMD_VISIBLE_DEVICES", "all");
  CHECK(job.drm() == kAmd);
  CHECK(job.named() == kIntel);
  job.wanted = {"amd.com/gpu=2"};
  CHECK_THAT(job.named(), Catch::Contains("device error: 2: unknown device"));
  job.wanted = {"amd.com/gpu=all", "vendor.com/card=0"};
  CHECK_THAT(job.named(), Catch::Contains("vendor.com/card=0") && !Catch::Contains("amd.com"));
  // A specification says it better.
  job.specify("amd.com/gpu");
  job.wanted = {"amd.com/gpu=all", "intel.com/gpu=0"};
  CHECK(job.named() == "BY=specification " + kIntel);
  job.settings.intel_gpu = GpuMode::off;
  CHECK_THAT(job.named(), Catch::Contains("error: ") && Catch::Contains("intel.com/gpu=0"));
  job.wanted = {"none"};
  CHECK(job.named().empty());
  CHECK(job.drm() == kAmd);
}

TEST_CASE("names of GPUs on a node that has none are what they were: names of a specification that is missing") {
  Job job({"intel,0000:00:02.0"});
  job.wanted = {"amd.com/gpu=all"};
  CHECK_THAT(job.named(), Catch::Contains("error: ") && Catch::Contains("amd.com/gpu=all"));
}

TEST_CASE("the fabric's libraries come only where the site says so, and not to a job or an image that says off") {
  Job job({});
  CHECK(job.run(BuiltInHook::fabric).empty());
  CHECK(job.log.messages.empty());
  job.settings.fabric = {Fabric::cxi};
  CHECK(job.run(BuiltInHook::fabric).empty());
  CHECK(job.log.count(LogLevel::debug, "the image has no glibc") == 1);
  job.image.set("SITULA_FABRIC", "off");
  CHECK(job.run(BuiltInHook::fabric).empty());
  CHECK(job.log.messages.size() == 1);
  job.host.set("SITULA_FABRIC", "on");
  CHECK(job.run(BuiltInHook::fabric).empty());
  CHECK(job.log.messages.size() == 2);
}

TEST_CASE("what a site wants for all containers is no job's request") {
  Job job({"amd,0000:05:00.0"});
  job.settings.devices = {"amd.com/gpu=all"};
  CHECK(job.named() == "kfd renderD128 card0");
  job.host.set("SLURM_STEP_GPUS", "0");
  CHECK(job.drm().empty());
  CHECK(job.log.messages.empty());
}
