// What do variables ask for, which conditions hold, and which GPUs are meant?
#include <algorithm>

#include "nvidia_machines.hpp"
#include <catch2/catch.hpp>

#include "common/base/text.hpp"
#include "hooks/inject/nvidia/requirement.hpp"
#include "hooks/inject/nvidia/selection.hpp"
#include "hooks/inject/nvidia/variables.hpp"
#include "tests/support/environment.hpp"

using namespace situla;
using namespace situla::nvidia;
using test::environment;

namespace {

DriverRequest request(const Environment& host, const Environment& container = {}) {
  auto parsed = parse_request(host, container);
  if (!parsed) FAIL(parsed.error().text());
  return *parsed;
}

std::string failure(const std::vector<std::pair<std::string, std::string>>& variables) {
  const auto parsed = parse_request(environment(variables), {});
  REQUIRE(!parsed);
  CHECK(parsed.error().kind() == ErrorKind::usage);
  return parsed.error().message();
}

using Strings = std::vector<std::string>;

}  // namespace

TEST_CASE("NVIDIA_VISIBLE_DEVICES: what is asked for") {
  struct Row {
    const char* value;
    bool wanted;
    Strings devices, cdi_names;
  };
  const std::vector<Row> rows = {
      {"", false, {}, {}},
      {" ", false, {}, {}},
      {"void", false, {}, {}},
      {"none", true, {}, {}},
      {"all", true, {"all"}, {}},
      {"0", true, {"0"}, {}},
      {" 0 , 1,,0", true, {"0", "1"}, {}},
      {",", true, {}, {}},
      {"GPU-aa,0000:41:00.0,MIG-bb,0:1", true, {"GPU-aa", "0000:41:00.0", "MIG-bb", "0:1"}, {}},
      {"MIG-GPU-aa/1/0", true, {"MIG-GPU-aa/1/0"}, {}},
      {"nvidia.com/gpu=0", false, {}, {"nvidia.com/gpu=0"}},
      {"nvidia.com/gpu=all, amd.com/gpu=1", false, {}, {"nvidia.com/gpu=all", "amd.com/gpu=1"}},
  };
  for (const Row& row : rows) {
    INFO(row.value);
    const DriverRequest parsed = request(environment({{"NVIDIA_VISIBLE_DEVICES", row.value}}));
    CHECK(parsed.wanted() == row.wanted);
    CHECK(parsed.devices == row.devices);
    CHECK(parsed.cdi_names == row.cdi_names);
  }
  CHECK_FALSE(request({}).wanted());
  CHECK_THAT(failure({{"NVIDIA_VISIBLE_DEVICES", "0,nvidia.com/gpu=1"}}),
             Catch::Contains("0 and nvidia.com/gpu=1 cannot be asked for together"));
  CHECK_THAT(failure({{"NVIDIA_VISIBLE_DEVICES", "gpu=1"}}), Catch::Contains("gpu=1: no name of a device"));
}

TEST_CASE("the job's variables beat the image's, even when they are empty") {
  const Environment image = environment({{"NVIDIA_VISIBLE_DEVICES", "all"},
                                         {"NVIDIA_DRIVER_CAPABILITIES", "compute,utility"},
                                         {"NVIDIA_REQUIRE_CUDA", "cuda>=12.6"},
                                         {"NVIDIA_REQUIRE_DRIVER", "driver>=470"}});
  const DriverRequest by_image = request({}, image);
  CHECK(by_image.wanted());
  CHECK(by_image.asker == Asker::image);
  CHECK(by_image.capabilities == (kCompute | kUtility));
  REQUIRE(by_image.requirements.size() == 2);
  CHECK(by_image.requirements[0].variable == "NVIDIA_REQUIRE_CUDA");
  CHECK(by_image.requirements[0].expression == "cuda>=12.6");

  for (const char* off : {"", "void"})
    CHECK_FALSE(request(environment({{"NVIDIA_VISIBLE_DEVICES", off}}), image).wanted());

  const DriverRequest by_job = request(
      environment(
          {{"NVIDIA_VISIBLE_DEVICES", "1"}, {"NVIDIA_DRIVER_CAPABILITIES", ""}, {"NVIDIA_REQUIRE_CUDA", "cuda>=9"}}),
      image);
  CHECK(by_job.asker == Asker::job);
  CHECK(by_job.devices == Strings{"1"});
  CHECK(by_job.capabilities == kUtility);
  REQUIRE(by_job.requirements.size() == 2);
  CHECK(by_job.requirements[0].expression == "cuda>=9");

  // A later line of /etc/environment beats an earlier one.
  Environment twice = image;
  twice.set("NVIDIA_VISIBLE_DEVICES", "none");
  CHECK(request({}, twice).devices.empty());
}

TEST_CASE("NVIDIA_DRIVER_CAPABILITIES") {
  const auto set = [](const char* value) {
    return request(environment({{"NVIDIA_VISIBLE_DEVICES", "all"}, {"NVIDIA_DRIVER_CAPABILITIES", value}}))
        .capabilities;
  };
  CHECK(set("") == kUtility);
  CHECK(set(",") == kUtility);
  CHECK(set("compute") == kCompute);
  CHECK(set("compute, utility video") == (kCompute | kUtility | kVideo));
  CHECK(set("graphics,display,compat32,ngx") == (kGraphics | kDisplay | kCompat32 | kNgx));
  CHECK(set("all") == (kUtility | kCompute | kVideo | kGraphics | kDisplay | kNgx | kCompat32));
  CHECK(set("all,nonsense") == set("all"));  // enroot reads no further
  const auto wrong = parse_request(
      environment({{"NVIDIA_VISIBLE_DEVICES", "all"}, {"NVIDIA_DRIVER_CAPABILITIES", "utility,compue"}}), {});
  REQUIRE(!wrong);
  CHECK(wrong.error().message() == "Unknown NVIDIA driver capability: compue");
  CHECK_THAT(wrong.error().hint(), Catch::Contains("did you mean \"compute\""));
  // Nobody looks at it where no GPU is asked for.
  CHECK(parse_request(environment({{"NVIDIA_DRIVER_CAPABILITIES", "nonsense"}}), {}));
}

TEST_CASE("the other variables of NVIDIA") {
  const DriverRequest none = request(environment({{"NVIDIA_VISIBLE_DEVICES", "all"},
                                                  {"NVIDIA_GDS", "1"},
                                                  {"NVIDIA_NVSWITCH", "Enabled"},
                                                  {"NVIDIA_MIG_CONFIG_DEVICES", "0"},
                                                  {"NVIDIA_REQUIRE_JETPACK", "csv-mounts=all"}}));
  CHECK_FALSE((none.gds || none.mofed || none.gdrcopy || none.nvswitch || none.mig_config || none.mig_monitor));
  CHECK(none.requirements.empty());
  CHECK((none.imex.channels.empty() && !none.imex.all));
  const DriverRequest all = request(environment({{"NVIDIA_VISIBLE_DEVICES", "all"},
                                                 {"NVIDIA_GDS", "enabled"},
                                                 {"NVIDIA_MOFED", "enabled"},
                                                 {"NVIDIA_GDRCOPY", "enabled"},
                                                 {"NVIDIA_NVSWITCH", "enabled"},
                                                 {"NVIDIA_MIG_CONFIG_DEVICES", "all"},
                                                 {"NVIDIA_MIG_MONITOR_DEVICES", "all"},
                                                 {"NVIDIA_IMEX_CHANNELS", "0, 1048575"},
                                                 {"NVIDIA_REQUIRE_CUDA", "cuda>=99"},
                                                 {"NVIDIA_DISABLE_REQUIRE", "false"}}));
  CHECK((all.gds && all.mofed && all.gdrcopy && all.nvswitch && all.mig_config && all.mig_monitor));
  CHECK(all.imex.channels == std::vector<uint32_t>{0, 1048575});
  CHECK(all.requirements.empty());  // any value disables them, as with enroot
  CHECK_THAT(failure({{"NVIDIA_VISIBLE_DEVICES", "all"}, {"NVIDIA_IMEX_CHANNELS", "1048576"}}),
             Catch::Contains("NVIDIA_IMEX_CHANNELS: 1048576"));
  CHECK_THAT(failure({{"NVIDIA_VISIBLE_DEVICES", "all"}, {"NVIDIA_IMEX_CHANNELS", "0,x"}}),
             Catch::Contains("NVIDIA_IMEX_CHANNELS: x"));
}

TEST_CASE("conditions of NVIDIA_REQUIRE_*") {
  enum Outcome { holds, fails, nonsense };
  struct Row {
    const char* expression;
    Outcome outcome;
  };
  const Properties properties{"12.4", "550.54.15", "9.0", "Tesla"};
  const std::vector<Row> rows = {
      {"", holds},
      {" ", holds},
      {",", holds},
      {"cuda>=12.4", holds},
      {"cuda>=12.4.0", holds},
      {"cuda>=12.4.1", fails},
      {"cuda>12.4", fails},
      {"cuda<12.10", holds},
      {"cuda=12.4.0.0", holds},
      {"cuda!=12.4", fails},
      {"CUDA<=12.4", holds},
      {"cuda>=9", holds},
      {"cuda<=9", fails},
      {"driver>=550,driver<551", holds},
      {"driver>=550.54.16", fails},
      {"driver<550", fails},
      {"arch>=9.0", holds},
      {"arch<9", fails},
      {"brand=tesla", holds},
      {"brand=TESLA", holds},
      {"brand!=tesla", fails},
      {"brand=grid,driver>=1", fails},
      {"cuda>=12.6 brand=tesla,driver>=470,driver<471 brand=tesla,driver>=550,driver<551", holds},
      {"cuda>=12.6 brand=tesla,driver>=470,driver<471", fails},
      {"cuda>=12.6  cuda>=12", holds},
      {"cuda>=1 nonsense", holds},
      {"cuda>=99 nonsense", nonsense},
      {"cuda", nonsense},
      {">=12", nonsense},
      {"cuda>=", nonsense},
      {"cuda=>12", nonsense},
      {"cuda==12", nonsense},
      {"cuda!12", nonsense},
      {"cuda>=twelve", nonsense},
      {"cuda>=12a", nonsense},
      {"cuda>=99999999999999999999999", nonsense},
      {"cuda>=.", nonsense},
      {"brand>tesla", nonsense},
      {"csv-mounts=all", nonsense},
      {"cuda >= 12", nonsense},
  };
  for (const Row& row : rows) {
    INFO(row.expression);
    const auto checked = check_requirement(row.expression, properties);
    const Outcome outcome = checked ? holds : checked.error().kind() == ErrorKind::usage ? nonsense : fails;
    CHECK(outcome == row.outcome);
  }
}

TEST_CASE("conditions about what nobody knows hold") {
  for (const char* expression : {"cuda>=99", "driver<1", "arch>=99", "brand=grid", "brand!=grid"}) {
    INFO(expression);
    CHECK(check_requirement(expression, {}));
  }
  CHECK_FALSE(check_requirement("speed>=1", {}));
}

TEST_CASE("a condition that does not hold is named as NVIDIA's tool does") {
  const Properties properties{"12.4", "550.54.15", "9.0", "Tesla"};
  CHECK(check_requirement("cuda>=12.6 brand=grid", properties).error().message() ==
        "requirement error: unsatisfied condition: cuda>=12.6, please update your driver to a newer version, or use an "
        "earlier cuda container");
  CHECK(check_requirement("driver>=999", properties).error().message() ==
        "requirement error: unsatisfied condition: driver>=999");
  CHECK(check_requirement("x\x1b=1", properties).error().message() ==
        "requirement error: invalid expression: x\\x1b=1");
}

namespace {

std::string picked(const Inventory& inventory, const Strings& names, const Strings& denied = {}) {
  const DeviceAccess access = [&](const Node& node, NodeUse use) {
    CHECK((use == NodeUse::capability) == node.path.starts_with("/dev/nvidia-caps/"));
    return std::find(denied.begin(), denied.end(), node.path) == denied.end();
  };
  const Selection usable = usable_gpus(inventory, access);
  const auto selection = select_gpus(names, usable);
  if (!selection) return selection.error().text();
  Strings words;
  for (const SelectedGpu& selected : *selection) {
    std::string word = selected.gpu->node.path.substr(5);
    for (const MigDevice* mig : selected.mig)
      word += "+" + std::to_string(mig->gpu_instance) + "/" + std::to_string(mig->compute_instance);
    words.push_back(word);
  }
  return join(words, " ");
}

}  // namespace

TEST_CASE("names of GPUs") {
  const Inventory two = machine("two");
  CHECK(picked(two, {}).empty());
  CHECK(picked(two, {"all"}) == "nvidia0 nvidia1");
  CHECK(picked(two, {"ALL"}) == "nvidia0 nvidia1");
  CHECK(picked(two, {"1", "0", "1"}) == "nvidia0 nvidia1");
  CHECK(picked(two, {"all", "nonsense"}) == "nvidia0 nvidia1");
  CHECK(picked(two, {"GPU-11111111-1111-2222-3333-444444444444"}) == "nvidia1");
  CHECK(picked(two, {"gpu-11111111-1111-2222-3333-444444444444"}) == "nvidia1");
  CHECK(picked(two, {"0000:81:00.0"}) == "nvidia1");
  CHECK(picked(two, {"00000000:81:00.0"}) == "nvidia1");
  CHECK(picked(machine("dgx"), {"00000000:C3:00.0"}) == "nvidia1");
  for (const char* wrong : {"2", "-1", "GPU-1111", "GPU-11111111-1111-2222-3333-4444444444445", "0000:81:00.1",
                            "81:00.0", "0:0", "MIG-0", "0x0", "nvidia0", "18446744073709551616"}) {
    INFO(wrong);
    CHECK_THAT(picked(two, {"0", wrong}),
               Catch::StartsWith(std::string("device error: ") + wrong + ": unknown device [gpu-request]\n"));
  }
}

TEST_CASE("GPUs are numbered in the order of their PCI addresses, among those that the job may use") {
  const Inventory dgx = machine("dgx");
  CHECK(picked(dgx, {"0"}) == "nvidia4");
  CHECK(picked(dgx, {"4"}) == "nvidia0");
  const Strings denied = {"/dev/nvidia4", "/dev/nvidia5", "/dev/nvidia6", "/dev/nvidia0", "/dev/nvidia1"};
  CHECK(picked(dgx, {"0"}, denied) == "nvidia7");
  CHECK(picked(dgx, {"all"}, denied) == "nvidia7 nvidia2 nvidia3");
  const std::string error = picked(dgx, {"4"}, denied);
  CHECK_THAT(error, Catch::StartsWith(
                        "device error: 4: unknown device [gpu-request]\nhint: this job may use 0 = GPU-77777777-"));
  CHECK_THAT(error, Catch::Contains("2 = GPU-33333333-"));
  CHECK_THAT(error, Catch::Contains("numbered from 0"));
  Inventory shuffled = dgx;
  std::reverse(shuffled.gpus.begin(), shuffled.gpus.end());
  CHECK(picked(shuffled, {"0"}) == "nvidia4");
}

TEST_CASE("names of MIG instances") {
  const Inventory mig = machine("mig");
  CHECK(picked(mig, {"all"}) == "nvidia0+1/0+2/0+2/1 nvidia1");
  CHECK(picked(mig, {"0"}) == "nvidia0");
  CHECK(picked(mig, {"0:1"}) == "nvidia0+2/0");
  CHECK(picked(mig, {"0:2", "0:0", "1"}) == "nvidia0+1/0+2/1 nvidia1");
  CHECK(picked(mig, {"MIG-bbbbbbbb-1111-2222-3333-444444444444"}) == "nvidia0+2/0");
  CHECK(picked(mig, {"MIG-GPU-00000000-1111-2222-3333-444444444444/2/1"}) == "nvidia0+2/1");
  CHECK_THAT(picked(mig, {"0:3"}), Catch::StartsWith("device error: 0:3: unknown device"));
  CHECK_THAT(picked(mig, {"1:0"}), Catch::StartsWith("device error: 1:0: unknown device"));
  CHECK_THAT(picked(mig, {"2:0"}), Catch::StartsWith("device error: 2:0: unknown device"));
  CHECK(picked(machine("mig-empty"), {"all"}) == "nvidia0 nvidia1");
}

TEST_CASE("of MIG instances only those count whose nodes may both be opened; the others' numbers move up") {
  const Inventory mig = machine("mig");
  const Strings denied = {"/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap23"};
  CHECK(picked(mig, {"all"}, denied) == "nvidia0+2/0");
  CHECK(picked(mig, {"0:0"}, denied) == "nvidia0+2/0");
  CHECK_THAT(picked(mig, {"0:1"}, denied), Catch::Contains("0:0 = MIG-bbbbbbbb-"));
  CHECK(picked(mig, {"all"}, {"/dev/nvidia0"}) == "nvidia1");
  CHECK_THAT(picked(mig, {"0:0"}, {"/dev/nvidia0"}), Catch::StartsWith("device error"));
  // Without NVML nobody knows their UUIDs; the older names do.
  CHECK_THAT(picked(machine("mig-proc"), {"MIG-x"}), Catch::Contains("0:0 = MIG-GPU-00000000-"));
}

TEST_CASE("a job without any GPU is told so") {
  const std::string error = picked(machine("two"), {"0"}, {"/dev/nvidia0", "/dev/nvidia1"});
  CHECK(error ==
        "device error: 0: unknown device [gpu-request]\nhint: this job may use no GPU of this node; ask Slurm for some "
        "(--gpus, "
        "--gres)");
}
