// situla inject --dry-run: does it say what a container would get, and leave everything as it is?
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "hooks/cli/tool.hpp"
#include "tests/support/as_user.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;
namespace fs = std::filesystem;

namespace {

Result<void> bind_on(const std::string& source, const std::string& target) {
  TRY_ASSIGN(const UniqueFd from, open_file(source, O_PATH));
  TRY_ASSIGN(const UniqueFd point, open_file(target, O_PATH));
  return bind_at(point.get(), from.get(), false, {}, target);
}

struct Outcome {
  int status = 0;
  std::string out, err;
};

/// A user on a machine with the adapters mlx5_0 and bnxt_re0.
struct Scene {
  Scene() {
    const std::string command = SITULA_SOURCE_DIR "/tests/gpu/make-hca-root " + shell_quote(dir / "machine") +
                                " mlx5_0,mlx5_core,0000:3b:00.0 bnxt_re0,bnxt_en,0000:01:00.0,eth";
    REQUIRE(std::system(command.c_str()) == 0);
    for (const char* name : {"null", "zero", "full", "random", "urandom", "tty"})
      dir.write(std::string("machine/dev/") + name, "");
    dir.write("root/etc/environment", "MELLANOX_VISIBLE_DEVICES=1\n");
    dir.write("root/etc/debian_version", "12\n");
    for (const char* name : {"proc", "sys", "dev", "tmp", "run", "var"}) fs::create_directories(dir / "root/" + name);
    const std::string squash =
        "mksquashfs " + (dir / "root") + " " + (dir / "image.sqsh") + " -all-root -quiet -no-progress >/dev/null";
    REQUIRE(std::system(squash.c_str()) == 0);
    fs::create_directories(dir / "runtime");
    test::give_to_user(dir.path());
    test::give_to_user(dir / "runtime");
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(dir / "root"))
      test::give_to_user(entry.path());
    test::give_to_user(dir / "root");
    environment.set("HOME", dir.path());
    environment.set("PATH", "/usr/bin:/bin");
    environment.set("ENROOT_SYSCONF_PATH", dir / "etc");
    environment.set("ENROOT_DATA_PATH", dir.path());
    environment.set("ENROOT_RUNTIME_PATH", dir / "runtime");
    environment.set("ENROOT_TEMP_PATH", dir / "runtime");
  }

  /// The machine's /sys and /dev, in the child's mount namespace.
  [[nodiscard]] Result<void> put_on_machine() const {
    for (const fs::directory_entry& entry : fs::directory_iterator(dir / "machine/dev"))
      if (entry.is_regular_file()) TRY(bind_on("/dev/" + entry.path().filename().string(), entry.path()));
    TRY(bind_on(dir / "machine/sys", "/sys"));
    TRY_ASSIGN(const UniqueFd from, open_file(dir / "machine/dev", O_PATH));
    TRY_ASSIGN(const UniqueFd point, open_file("/dev", O_PATH));
    return bind_at(point.get(), from.get(), true, {}, "/dev");
  }

  /// Runs the tool in a child, and passes what it said to the body.
  void run(const std::vector<std::string>& arguments, const std::function<Result<void>(const Outcome&)>& body) const {
    INFO(join(arguments, " "));
    CHECK(test::in_user_namespace(
              [&]() -> Result<void> {
                TRY(put_on_machine());
                std::istringstream in;
                std::ostringstream out;
                std::ostringstream err;
                std::vector<std::string> words = {"inject", "--dry-run"};
                words.insert(words.end(), arguments.begin(), arguments.end());
                const int status = cli::run_tool({"situla", words, environment}, {in, out, err});
                return body({status, out.str(), err.str()});
              },
              true) == "");
    CHECK(fs::is_empty(dir / "runtime"));
  }

  test::TempDir dir;
  Environment environment;
};

/// The plan shows this adapter's node and no other's.
Result<void> expect_only(const Outcome& outcome, const std::string& node) {
  if (outcome.status != 0) return fail(ErrorKind::failure, outcome.err);
  EXPECT(outcome.out.find("cover /sys/class/infiniband [") != std::string::npos);
  for (const std::string verbs : {"uverbs0", "uverbs1"})
    EXPECT((outcome.out.find("device /dev/infiniband/" + verbs + " on ") != std::string::npos) == (verbs == node));
  return {};
}

}  // namespace

TEST_CASE("without a root: by the variables of the caller, or --env") {
  Scene scene;
  scene.run({}, [](const Outcome& outcome) -> Result<void> {
    EXPECT(outcome.status == 0);
    EXPECT(outcome.out.empty());
    EXPECT(outcome.err.find("[INFO] nothing would be injected") != std::string::npos);
    return {};
  });
  scene.run({"-e", "MELLANOX_VISIBLE_DEVICES=0"},
            [](const Outcome& outcome) { return expect_only(outcome, "uverbs0"); });
  scene.environment.set("MELLANOX_VISIBLE_DEVICES", "1");
  scene.run({}, [](const Outcome& outcome) { return expect_only(outcome, "uverbs1"); });
  scene.run({"-e", "MELLANOX_VISIBLE_DEVICES=0"},
            [](const Outcome& outcome) { return expect_only(outcome, "uverbs1"); });
  scene.environment.set("MELLANOX_VISIBLE_DEVICES", "7");
  scene.run({}, [](const Outcome& outcome) -> Result<void> {
    EXPECT(outcome.status == 1);
    EXPECT(outcome.err.find("Unknown MELLANOX device id: 7") != std::string::npos);
    EXPECT(outcome.err.find("hint: this node has 0: mlx5_0 (0000:3b:00.0), 1: bnxt_re0") != std::string::npos);
    return {};
  });
}

TEST_CASE("what the image's environment asks for: in a directory, by name, and in a squashfs file") {
  const Scene scene;
  for (const std::string& root : {scene.dir / "root", std::string("root"), scene.dir / "image.sqsh"})
    scene.run({root}, [](const Outcome& outcome) { return expect_only(outcome, "uverbs1"); });
}

TEST_CASE("names of devices") {
  const Scene scene;
  scene.run({"--devices", "situla.dev/hca=mlx5_0"}, [](const Outcome& outcome) -> Result<void> {
    EXPECT(outcome.out ==
           "device /dev/infiniband/uverbs0 on /dev/infiniband/uverbs0 (c 231:192)  (situla.dev/hca=mlx5_0)\n"
           "device /dev/infiniband/rdma_cm on /dev/infiniband/rdma_cm (c 10:56)  (situla.dev/hca=mlx5_0)\n");
    return {};
  });
  scene.run({"--devices", "situla.dev/hca=mlx5_9"}, [](const Outcome& outcome) -> Result<void> {
    EXPECT(outcome.status == 1);
    EXPECT(outcome.err.find("unknown network adapter situla.dev/hca=mlx5_9") != std::string::npos);
    return {};
  });
}

TEST_CASE("an image starts where there is nothing of what it asks for, however it words it; a job is told") {
  const bool has_driver = fs::exists("/proc/driver/nvidia/version");
  for (const auto& [asked, said] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"NVIDIA_VISIBLE_DEVICES=situla.test/gpu=0"}, "situla.test/gpu=0"},
           {{"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute,vulkan"}, "vulkan"},
           {{"NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_IMEX_CHANNELS=x"}, "NVIDIA_IMEX_CHANNELS: x"}}) {
    if (has_driver && asked.size() > 1) continue;
    Scene scene;
    std::vector<std::string> arguments;
    for (const std::string& variable : asked) arguments.insert(arguments.end(), {"-e", variable});
    const auto names_it = [&, &said = said](const Outcome& outcome, const char* level, int status) -> Result<void> {
      EXPECT(outcome.status == status && outcome.out.empty());
      EXPECT(outcome.err.find(level) != std::string::npos && outcome.err.find(said) != std::string::npos);
      return {};
    };
    scene.run(arguments, [&](const Outcome& outcome) { return names_it(outcome, "[INFO] the image asks for", 0); });
    for (const std::string& variable : asked)
      scene.environment.set(variable.substr(0, variable.find('=')), variable.substr(variable.find('=') + 1));
    scene.run({}, [&](const Outcome& outcome) { return names_it(outcome, "[ERROR]", 1); });
  }
}

TEST_CASE("JSON says who asked for each edit") {
  const Scene scene;
  scene.run({"--json", "-e", "MELLANOX_VISIBLE_DEVICES=0"}, [](const Outcome& outcome) -> Result<void> {
    const auto json = nlohmann::json::parse(outcome.out);
    EXPECT(json["covers"][0]["target"] == "/sys/class/infiniband");
    EXPECT(json["covers"][0]["required"] == true);
    EXPECT(json["mounts"][0]["options"][0] == "ro");
    EXPECT(json["devices"][1]["source"] == "/dev/infiniband/uverbs0");
    EXPECT(json["devices"][1]["minor"] == 192);
    EXPECT(json["devices"][1]["origin"] == "MELLANOX_VISIBLE_DEVICES");
    EXPECT(json["files"][0]["kind"] == "link");
    EXPECT(json["libraries"]["files"].empty());
    return {};
  });
  scene.run({"--json"}, [](const Outcome& outcome) -> Result<void> {
    EXPECT(nlohmann::json::parse(outcome.out)["devices"].empty());
    EXPECT(outcome.err.empty());
    return {};
  });
}
