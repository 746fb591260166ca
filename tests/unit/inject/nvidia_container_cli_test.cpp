// What is NVIDIA's own tool told (gpu = "nvidia-container-cli"), and what if it is not there?
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/base/text.hpp"
#include "hooks/inject/nvidia/container_cli.hpp"
#include "tests/support/environment.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;
using namespace situla::nvidia;
using test::environment;
using test::Variables;

namespace {

using Strings = std::vector<std::string>;

/// A node that has the tool, in the second directory of the job's PATH.
struct GpuHost {
  test::TempDir dir;
  std::string tool = dir.write("bin/nvidia-container-cli", "#!/bin/sh\n");

  GpuHost() { REQUIRE(chmod(tool.c_str(), 0755) == 0); }
  [[nodiscard]] std::string path() const { return dir / "empty" + ":" + (dir / "bin"); }

  [[nodiscard]] Result<ContainerEdits> edits(Variables host, const Variables& image = {}) const {
    host.emplace_back("PATH", path());
    const Environment all = environment(host);
    const auto request = parse_request(all, environment(image));
    REQUIRE(request);
    return container_cli_edits(*request, "/run/root", all);
  }
  [[nodiscard]] ProgramEdit program(const Variables& host, const Variables& image = {}) const {
    const auto all = edits(host, image);
    REQUIRE(all);
    REQUIRE(all->programs.size() == 1);
    return all->programs.front();
  }
  /// What follows the words that are always the same, with the root's path as the last.
  [[nodiscard]] std::string words(const Variables& host, const Variables& image = {}) const {
    Strings arguments = program(host, image).arguments;
    const std::string linker = access("/sbin/ldconfig.real", X_OK) == 0 ? "/sbin/ldconfig.real" : "/sbin/ldconfig";
    const Strings fixed = {"nvidia-container-cli", "--user", "configure", "--no-cgroups", "--ldconfig=@" + linker};
    REQUIRE(arguments.size() > fixed.size());
    CHECK(Strings(arguments.begin(), arguments.begin() + 5) == fixed);
    return join(Strings(arguments.begin() + 5, arguments.end()), " ");
  }
};

}  // namespace

TEST_CASE("nvidia-container-cli: requests in its words") {
  struct Row {
    Variables host, image;
    std::string words;
  };
  const std::string all = "NVIDIA_VISIBLE_DEVICES";
  const std::string capabilities = "NVIDIA_DRIVER_CAPABILITIES";
  const std::vector<Row> rows = {
      {{{all, "all"}}, {}, "--device=all --utility /run/root"},
      {{{all, "none"}}, {}, "--utility /run/root"},
      {{{all, "0,GPU-aa"}}, {{capabilities, "compute,utility"}}, "--device=0,GPU-aa --compute --utility /run/root"},
      {{{all, "0:1"}, {capabilities, "graphics"}}, {{all, "all"}}, "--device=0:1 --graphics /run/root"},
      {{{all, "all"}, {capabilities, "all"}},
       {},
       "--device=all --compat32 --compute --display --graphics --ngx --utility --video /run/root"},
      {{},
       {{all, "all"}, {"NVIDIA_REQUIRE_CUDA", "cuda>=12.4 brand=tesla,driver>=535"}},
       "--device=all --utility --require=cuda>=12.4 brand=tesla,driver>=535 /run/root"},
      {{{"NVIDIA_DISABLE_REQUIRE", "1"}},
       {{all, "all"}, {"NVIDIA_REQUIRE_CUDA", "cuda>=12.4"}},
       "--device=all --utility /run/root"},
      {{{all, "all"}, {"NVIDIA_MIG_CONFIG_DEVICES", "all"}, {"NVIDIA_MIG_MONITOR_DEVICES", "all"}},
       {},
       "--device=all --mig-config=all --mig-monitor=all --utility /run/root"},
      {{{all, "0"}, {"NVIDIA_IMEX_CHANNELS", "0,7"}}, {}, "--device=0 --utility --imex-channel=0,7 /run/root"},
      {{{all, "0"}, {"NVIDIA_IMEX_CHANNELS", "all"}}, {}, "--device=0 --utility /run/root"},
  };
  const GpuHost node;
  for (const Row& row : rows) {
    INFO(row.words);
    CHECK(node.words(row.host, row.image) == row.words);
  }
}

TEST_CASE("nvidia-container-cli is the one of the job's PATH, and sees little of the job") {
  const GpuHost node;
  const ProgramEdit plain = node.program({{"NVIDIA_VISIBLE_DEVICES", "all"}, {"LD_PRELOAD", "/tmp/x.so"}});
  CHECK(plain.path == node.tool);
  CHECK(plain.environment == Strings{"PATH=" + node.path()});
  CHECK(plain.limit.count() == 60);
  CHECK(plain.origin == "gpu = \"nvidia-container-cli\"");
  const ProgramEdit shared = node.program({{"NVIDIA_VISIBLE_DEVICES", "all"}, {"CUDA_MPS_PIPE_DIRECTORY", "/tmp/mps"}});
  CHECK(shared.environment == Strings{"PATH=" + node.path(), "CUDA_MPS_PIPE_DIRECTORY=/tmp/mps"});
}

TEST_CASE("without nvidia-container-cli an image starts without GPUs, and a job gets an error") {
  const GpuHost node;
  REQUIRE(chmod(node.tool.c_str(), 0644) == 0);
  const auto image = node.edits({}, {{"NVIDIA_VISIBLE_DEVICES", "all"}});
  REQUIRE(image);
  CHECK(image->empty());
  const auto job = node.edits({{"NVIDIA_VISIBLE_DEVICES", "0"}}, {{"NVIDIA_VISIBLE_DEVICES", "all"}});
  REQUIRE_FALSE(job);
  CHECK(job.error().kind() == ErrorKind::not_found);
  CHECK(job.error().message() == "Command not found: nvidia-container-cli");
  CHECK(job.error().code() == ErrorCode::site_config);
  CHECK_THAT(job.error().text(), Catch::Contains("gpu = \"native\" needs nothing"));
}

TEST_CASE("a relative directory of PATH is not searched for nvidia-container-cli") {
  const GpuHost node;
  Environment host = environment({{"NVIDIA_VISIBLE_DEVICES", "all"}, {"PATH", "bin:."}});
  const auto request = parse_request(host, {});
  REQUIRE(request);
  const std::string before = std::filesystem::current_path().string();
  std::filesystem::current_path(node.dir.path());
  const auto edits = container_cli_edits(*request, "/run/root", host);
  std::filesystem::current_path(before);
  CHECK_FALSE(edits);
}
