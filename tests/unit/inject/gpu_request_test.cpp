// Who asks for GPUs? One decision for all vendors.
#include <catch2/catch.hpp>

#include "common/base/text.hpp"
#include "hooks/inject/gpu/request.hpp"
#include "tests/support/environment.hpp"

using namespace situla;
using gpu::Asker;
using gpu::kAmd;
using gpu::kIntel;
using gpu::kNvidia;
using test::environment;
using test::Variables;

namespace {

/// "job: 0 1", "nobody:", or the error.
std::string request(const gpu::Vendor& vendor, const Variables& host, const Variables& container = {}) {
  const auto request = gpu::parse_request(vendor, environment(host), environment(container));
  if (!request) return "error: " + request.error().text();
  static const std::vector<std::string> kAskers = {"nobody", "slurm", "image", "job"};
  const auto& names = request->cdi_names.empty() ? request->devices : request->cdi_names;
  return kAskers.at(static_cast<size_t>(request->asker)) + ":" + (names.empty() ? "" : " ") + join(names, " ");
}

}  // namespace

TEST_CASE("a vendor's variable asks, the job's before the image's, and both before Slurm") {
  const Variables slurm = {{"SLURM_STEP_GPUS", "0,1"}};
  CHECK(request(kAmd, {{"AMD_VISIBLE_DEVICES", "0, 2-3"}}) == "job: 0 2-3");
  CHECK(request(kAmd, {}, {{"AMD_VISIBLE_DEVICES", "all"}}) == "image: all");
  CHECK(request(kAmd, {{"AMD_VISIBLE_DEVICES", "1"}}, {{"AMD_VISIBLE_DEVICES", "all"}}) == "job: 1");
  CHECK(request(kAmd, slurm, {{"AMD_VISIBLE_DEVICES", "1"}}) == "image: 1");
  for (const char* nothing : {"", " ", "void"}) {
    INFO(nothing);
    CHECK(request(kAmd, {{"AMD_VISIBLE_DEVICES", nothing}, {"SLURM_STEP_GPUS", "0,1"}}) == "nobody:");
    CHECK(request(kAmd, {{"AMD_VISIBLE_DEVICES", nothing}}, {{"AMD_VISIBLE_DEVICES", "all"}}) == "nobody:");
    CHECK(request(kAmd, slurm, {{"AMD_VISIBLE_DEVICES", nothing}}) == "nobody:");
  }
  CHECK(request(kAmd, {{"AMD_VISIBLE_DEVICES", "none"}, {"SLURM_STEP_GPUS", "0"}}) == "job:");
  CHECK(request(kAmd, {{"NVIDIA_VISIBLE_DEVICES", "all"}}) == "nobody:");
}

TEST_CASE("a job may refuse GPUs, an image only asks for none") {
  for (const char* nothing : {"", " ", "void", "none"}) {
    INFO(nothing);
    const Variables variable = {{"AMD_VISIBLE_DEVICES", nothing}};
    CHECK(gpu::parse_request(kAmd, environment(variable), {})->refused);
    CHECK_FALSE(gpu::parse_request(kAmd, {}, environment(variable))->refused);
    CHECK_FALSE(gpu::parse_request(kIntel, environment(variable), {})->refused);
  }
  CHECK_FALSE(gpu::parse_request(kAmd, environment({{"AMD_VISIBLE_DEVICES", "0"}}), {})->refused);
  CHECK_FALSE(gpu::parse_request(kAmd, {}, {})->refused);
}

TEST_CASE("what Slurm gives is asked for, but of NVIDIA's") {
  for (const char* variable : {"SLURM_STEP_GPUS", "SLURM_JOB_GPUS"}) {
    INFO(variable);
    CHECK(request(kAmd, {{variable, "3"}}) == "slurm: all");
    CHECK(request(kIntel, {{variable, "3"}}) == "slurm: all");
    CHECK(request(kNvidia, {{variable, "3"}}) == "nobody:");
    CHECK(request(kAmd, {{variable, ""}}) == "nobody:");
    CHECK(request(kAmd, {}, {{variable, "3"}}) == "nobody:");
  }
  for (const char* variable : {"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"}) {
    INFO(variable);
    CHECK(request(kAmd, {{variable, "0"}}) == "slurm: all");
    CHECK(request(kAmd, {{variable, "NoDevFiles"}}) == "nobody:");
    CHECK(request(kIntel, {{variable, "0"}}) == "nobody:");
  }
  CHECK(request(kIntel, {{"ZE_AFFINITY_MASK", "0.1"}}) == "slurm: all");
  CHECK(request(kAmd, {{"ZE_AFFINITY_MASK", "0"}}) == "nobody:");
  // A count for those who use it, and nothing that Intel knows.
  CHECK(request(kIntel, {{"INTEL_VISIBLE_DEVICES", "2"}}) == "nobody:");
}

TEST_CASE("CDI names in the variable, never together with others") {
  CHECK(request(kAmd, {{"AMD_VISIBLE_DEVICES", "amd.com/gpu=0,amd.com/gpu=1"}}) == "job: amd.com/gpu=0 amd.com/gpu=1");
  CHECK_THAT(request(kAmd, {{"AMD_VISIBLE_DEVICES", "0,amd.com/gpu=1"}}),
             Catch::StartsWith("error: AMD_VISIBLE_DEVICES: 0 and amd.com/gpu=1 cannot be asked for together"));
  CHECK_THAT(request(kAmd, {{"AMD_VISIBLE_DEVICES", "=1"}}),
             Catch::StartsWith("error: AMD_VISIBLE_DEVICES: =1: no name of a device") &&
                 Catch::Contains("such as amd.com/gpu=0"));
  CHECK(gpu::is_of_kind("intel.com/gpu=all", kIntel));
  CHECK_FALSE(gpu::is_of_kind("intel.com/gpu", kIntel));
  CHECK_FALSE(gpu::is_of_kind("intel.com/gpu.monitoring=all", kIntel));
  CHECK_FALSE(gpu::is_of_kind("amd.com/gpu=all", kIntel));
}
