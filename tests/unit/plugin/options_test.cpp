// COMPAT.md section 1: which options and environment variables mean what, and which are refused how.
#include "plugin/options.hpp"

#include <map>
#include <stdexcept>

#include <catch2/catch.hpp>

#include "plugin/environment_file.hpp"
#include "tests/support/memory_log.hpp"
#include "tests/unit/plugin/lookup.hpp"

using namespace situla;
using test::variables;

namespace {

const OptionInfo& option(std::string_view name) {
  for (const OptionInfo& row : option_table())
    if (row.name == name) return row;
  throw std::out_of_range(std::string(name));
}

ContainerSpec spec_of(const ContainerOptions& options) {
  const auto spec = options.finish();
  REQUIRE(spec);
  REQUIRE(*spec);
  return **spec;
}

std::string error_of(const Result<void>& result) {
  REQUIRE_FALSE(result);
  return result.error().message();
}

}  // namespace

TEST_CASE("every option of COMPAT.md 1 is in the table once") {
  const std::map<std::string, bool> expected = {{"container-image", true},
                                                {"container-mounts", true},
                                                {"container-workdir", true},
                                                {"container-name", true},
                                                {"container-save", true},
                                                {"container-mount-home", false},
                                                {"no-container-mount-home", false},
                                                {"container-remap-root", false},
                                                {"no-container-remap-root", false},
                                                {"container-entrypoint", false},
                                                {"no-container-entrypoint", false},
                                                {"container-entrypoint-log", false},
                                                {"container-writable", false},
                                                {"container-readonly", false},
                                                {"container-env", true},
                                                {"container-unshare", true},
                                                {"container-devices", true},
                                                {"container-resolve", true},
                                                {"container-prefetch", false},
                                                {"no-container", false},
                                                {"no-slurm-inside", false},
                                                {"environment", true}};
  std::map<std::string, bool> found;
  for (const OptionInfo& row : option_table()) found[row.name] = row.argument != nullptr;
  CHECK(found == expected);
  CHECK(option_table().size() == expected.size());
}

TEST_CASE("no option means no container") {
  const ContainerOptions options;
  const auto spec = options.finish();
  REQUIRE(spec);
  CHECK_FALSE(*spec);
  CHECK(options.warnings().empty());
}

TEST_CASE("options without an image are reported and ignored") {
  ContainerOptions options;
  REQUIRE(options.set(option("container-mounts"), "/data"));
  REQUIRE(options.set(option("container-writable"), ""));
  const auto spec = options.finish();
  REQUIRE(spec);
  CHECK_FALSE(*spec);
  CHECK(options.warnings() ==
        std::vector<std::string>{
            "ignoring --container-mounts because neither --container-image nor --container-name is set",
            "ignoring --container-writable because neither --container-image nor --container-name is set"});
}

TEST_CASE("the same value twice is fine, another is not, mounts and env accumulate") {
  ContainerOptions options;
  REQUIRE(options.set(option("container-image"), "ubuntu:22.04"));
  REQUIRE(options.set(option("container-image"), "ubuntu:22.04"));
  CHECK(error_of(options.set(option("container-image"), "debian")) == "--container-image: specified multiple times");
  REQUIRE(options.set(option("container-workdir"), "/a"));
  CHECK(error_of(options.set(option("container-workdir"), "/b")) == "--container-workdir: specified multiple times");
  REQUIRE(options.set(option("container-mounts"), "/a"));
  REQUIRE(options.set(option("container-mounts"), "/b:/c"));
  REQUIRE(options.set(option("container-env"), "ONE"));
  REQUIRE(options.set(option("container-env"), "TWO,THREE"));
  const ContainerSpec spec = spec_of(options);
  REQUIRE(spec.mounts.size() == 2);
  CHECK(spec.mounts[1].target == "/c");
  CHECK(spec.keep_env == std::vector<std::string>{"ONE", "TWO", "THREE"});
}

TEST_CASE("an option and its opposite are refused") {
  const auto [first, second] = GENERATE(std::pair("container-mount-home", "no-container-mount-home"),
                                        std::pair("no-container-remap-root", "container-remap-root"),
                                        std::pair("container-writable", "container-readonly"));
  ContainerOptions options;
  REQUIRE(options.set(option(first), ""));
  const auto result = options.set(option(second), "");
  REQUIRE_FALSE(result);
  CHECK(result.error().kind() == ErrorKind::usage);
  CHECK(result.error().code() == ErrorCode::option);
}

TEST_CASE("opposites are rows of the table, and each other's") {
  for (const OptionInfo& row : option_table())
    if (row.opposite != nullptr) CHECK(option(row.opposite).opposite == std::string_view(row.name));
}

TEST_CASE("tri-state options") {
  ContainerOptions options;
  REQUIRE(options.set(option("container-image"), "debian"));
  CHECK(spec_of(options).writable == Tristate::unset);
  REQUIRE(options.set(option("container-readonly"), ""));
  REQUIRE(options.set(option("container-remap-root"), ""));
  REQUIRE(options.set(option("no-container-mount-home"), ""));
  CHECK(spec_of(options).writable == Tristate::no);
  CHECK(spec_of(options).remap_root == Tristate::yes);
  CHECK(spec_of(options).mount_home == Tristate::no);
}

TEST_CASE("a name has a flag and is fit to be a directory's name") {
  const auto named = [](const std::string& value) {
    ContainerOptions options;
    REQUIRE(options.set(option("container-name"), value));
    return spec_of(options);
  };
  CHECK(named("env-1.2_x@y+z=").name == "env-1.2_x@y+z=");
  CHECK(named("x").name_flag == NameFlag::automatic);
  CHECK(named("x:").name_flag == NameFlag::automatic);
  CHECK(named("x:auto").name_flag == NameFlag::automatic);
  CHECK(named("x:create").name_flag == NameFlag::create);
  CHECK(named("x:exec").name_flag == NameFlag::exec);
  CHECK(named("x:no_exec").name_flag == NameFlag::no_exec);
  CHECK(named(std::string(230, 'n')).name.size() == 230);

  const auto refused = [](const std::string& value) {
    ContainerOptions options;
    return error_of(options.set(option("container-name"), value));
  };
  CHECK(refused("x:always").find(R"(flag must be "auto", "create", "exec" or "no_exec")") != std::string::npos);
  CHECK(refused("x:exec:create").find("flag must be") != std::string::npos);
  CHECK(refused(":exec").find("the name is empty") != std::string::npos);
  CHECK(refused(std::string(300, 'n')).find("longer than 230 characters") != std::string::npos);
  for (const char* name : {"../x", "/x", "a b", "a\nb", "bär", "a\\b", "'x'"}) {
    INFO(name);
    CHECK(refused(name).find("cannot be the name of a container") != std::string::npos);
  }
  ContainerOptions options;
  CHECK(options.set(option("container-name"), "../x").error().code() == ErrorCode::container_name);
  CHECK(options.set(option("container-name"), "x:always").error().code() == ErrorCode::option);
}

TEST_CASE("saving, namespaces and the entrypoint") {
  ContainerOptions options;
  REQUIRE(options.set(option("container-image"), "debian"));
  REQUIRE(options.set(option("container-save"), "dir/image.sqsh"));
  REQUIRE(options.set(option("container-unshare"), "net,uts"));
  REQUIRE(options.set(option("no-container-entrypoint"), ""));
  REQUIRE(options.set(option("container-entrypoint-log"), ""));
  const ContainerSpec spec = spec_of(options);
  CHECK(spec.save == "dir/image.sqsh");
  CHECK(spec.unshare == Isolation{.pid = false, .net = true, .ipc = false, .uts = true});
  CHECK(spec.entrypoint == Tristate::no);
  CHECK(spec.entrypoint_log);
  CHECK(error_of(options.set(option("container-entrypoint"), "")).find("--no-container-entrypoint") !=
        std::string::npos);

  ContainerOptions wrong;
  CHECK(error_of(wrong.set(option("container-save"), "dir/")).find("not the name of a file") != std::string::npos);
  CHECK(error_of(wrong.set(option("container-unshare"), "net,user")).find("unknown namespace: user") !=
        std::string::npos);
  CHECK(error_of(wrong.set(option("container-unshare"), "")).find("needs a value") != std::string::npos);
}

TEST_CASE("a name alone is a container, from the environment, too") {
  ContainerOptions options;
  REQUIRE(options.apply_environment(variables({{"PYXIS_CONTAINER_NAME", "x:exec"}})));
  const ContainerSpec spec = spec_of(options);
  CHECK(spec.image.empty());
  CHECK(spec.name == "x");
  CHECK(spec.name_flag == NameFlag::exec);
  CHECK(options.warnings().empty());
}

TEST_CASE("values are checked where the user types them") {
  ContainerOptions options;
  CHECK_FALSE(options.set(option("container-image"), ""));
  CHECK_FALSE(options.set(option("container-image"), "UPPER/Case"));
  CHECK_FALSE(options.set(option("container-image"), "dockerd://-x"));
  CHECK_FALSE(options.set(option("container-image"), "oci:"));
  CHECK_FALSE(options.set(option("container-image"), "http://x"));
  CHECK_FALSE(options.set(option("container-mounts"), "relative:/x"));
  CHECK(options.set(option("container-mounts"), "/a:/b:RO").error().text() ==
        "--container-mounts: bind /a on /b: unknown flag \"RO\" [mount-syntax]\nhint: did you mean \"ro\"?");
  CHECK_FALSE(options.set(option("container-env"), "GOOD,2BAD"));
  CHECK_FALSE(options.set(option("container-env"), "GOOD,"));
  CHECK_FALSE(options.set(option("container-env"), "GOOD,,OTHER"));
  CHECK(options.set(option("container-env"), "GOOD,2BAD").error().code() == ErrorCode::option);
  CHECK(options.set(option("container-image"), "").error().code() == ErrorCode::option);
  CHECK(options.set(option("container-image"), "UPPER/Case").error().code() == ErrorCode::image_name);
  CHECK(options.set(option("container-image"), "./image.sqsh"));
}

TEST_CASE("defaults from the environment: SITULA_ before PYXIS_, an option before both, whole option") {
  ContainerOptions options;
  REQUIRE(options.set(option("container-mounts"), "/opt"));
  REQUIRE(options.apply_environment(variables({{"PYXIS_CONTAINER_IMAGE", "pyxis"},
                                               {"SITULA_CONTAINER_IMAGE", "situla"},
                                               {"PYXIS_CONTAINER_MOUNTS", "/data"},
                                               {"PYXIS_CONTAINER_WORKDIR", "/w"},
                                               {"PYXIS_CONTAINER_REMAP_ROOT", "yes"},
                                               {"PYXIS_CONTAINER_MOUNT_HOME", "0"},
                                               {"PYXIS_CONTAINER_WRITABLE", "TRUE"}})));
  const ContainerSpec spec = spec_of(options);
  CHECK(spec.image == "situla");
  REQUIRE(spec.mounts.size() == 1);
  CHECK(spec.mounts[0].source == "/opt");
  CHECK(spec.workdir == "/w");
  CHECK(spec.remap_root == Tristate::yes);
  CHECK(spec.mount_home == Tristate::no);
  CHECK(spec.writable == Tristate::unset);  // only lower-case words count
}

TEST_CASE("PYXIS_CONTAINER_READONLY=0 means writable, and an option of the pair beats the variable") {
  ContainerOptions options;
  REQUIRE(options.set(option("container-image"), "debian"));
  SECTION("variable alone") {
    REQUIRE(options.apply_environment(variables({{"PYXIS_CONTAINER_READONLY", "0"}})));
    CHECK(spec_of(options).writable == Tristate::yes);
  }
  SECTION("option wins") {
    REQUIRE(options.set(option("container-readonly"), ""));
    REQUIRE(options.apply_environment(variables({{"PYXIS_CONTAINER_WRITABLE", "1"}})));
    CHECK(spec_of(options).writable == Tristate::no);
  }
}

TEST_CASE("a stray variable does not break jobs without a container, but a bad one does break those with") {
  ContainerOptions without;
  CHECK(
      without.apply_environment(variables({{"PYXIS_CONTAINER_WORKDIR", "/"}, {"PYXIS_CONTAINER_MOUNTS", "bad:bad"}})));
  ContainerOptions with;
  REQUIRE(with.set(option("container-image"), "debian"));
  CHECK_FALSE(with.apply_environment(variables({{"PYXIS_CONTAINER_NAME", "x/y"}})));
}

TEST_CASE("images in files and engines are images, too") {
  for (const char* image :
       {"oci:dir:tag", "oci-archive:/a.tar", "docker-archive:a.tar:x/y:1", "dir:d", "dockerd://x:1", "podman://x"}) {
    ContainerOptions options;
    INFO(image);
    REQUIRE(options.set(option("container-image"), image));
    CHECK(spec_of(options).image == image);
  }
}

TEST_CASE("what adds up reaches the node, which hears of the last use only") {
  ContainerOptions client, node;
  REQUIRE(client.set(option("container-image"), "tiny"));
  REQUIRE(client.set(option("container-mounts"), "/a:/a"));
  REQUIRE(client.set(option("container-mounts"), "/b:/b"));
  REQUIRE(client.set(option("container-env"), "ONE"));
  std::map<std::string, std::string> environment;
  for (const auto& [variable, sum] : client.sums()) environment[variable] = sum;
  CHECK(environment == std::map<std::string, std::string>{{"SLURM_SITULA_CONTAINER_MOUNTS", "/a:/a,/b:/b"},
                                                          {"SLURM_SITULA_CONTAINER_ENV", ""}});

  REQUIRE(node.set(option("container-image"), "tiny"));
  REQUIRE(node.set(option("container-mounts"), "/b:/b"));
  node.apply_sums(variables(environment));
  CHECK(spec_of(node).mounts.size() == 2);

  // A step of that job with another option; one that inherits the job's, as salloc hands it on.
  ContainerOptions other, inheriting;
  REQUIRE(other.set(option("container-image"), "tiny"));
  REQUIRE(other.set(option("container-mounts"), "/c:/c"));
  other.apply_sums(variables(environment));
  CHECK(spec_of(other).mounts.size() == 1);
  environment["_SLURM_SPANK_OPTION_situla_container_mounts"] = "/b:/b";
  inheriting.inherit_sums(variables(environment));
  REQUIRE(inheriting.set(option("container-mounts"), "/b:/b"));
  REQUIRE(inheriting.set(option("container-image"), "tiny"));
  CHECK(spec_of(inheriting).mounts.size() == 2);
}

TEST_CASE("a script that unsets pyxis's variable of an inherited option does not get the option") {
  ContainerOptions options;
  REQUIRE(options.set(option("container-image"), "debian"));
  const auto handed_on = options.pyxis_variables();
  REQUIRE(handed_on.size() == 1);
  CHECK(handed_on[0].first == "_SLURM_SPANK_OPTION_pyxis_container_image");
  CHECK(handed_on[0].second == "debian");
  const std::string ours = "SLURM_SPANK__SLURM_SPANK_OPTION_situla_container_image";
  const std::string theirs = "SLURM_SPANK__SLURM_SPANK_OPTION_pyxis_container_image";
  CHECK(ContainerOptions::unset_by_script(variables({{ours, "debian"}, {theirs, "debian"}})).empty());
  CHECK(ContainerOptions::unset_by_script(variables({{ours, "debian"}})) == std::vector<std::string>{ours});
  CHECK(
      ContainerOptions::unset_by_script(variables({{"_SLURM_SPANK_OPTION_situla_container_image", "debian"}})).size() ==
      1);
  CHECK(ContainerOptions::unset_by_script(variables({{theirs, "debian"}})).empty());
}

TEST_CASE("devices add up, and none stands alone") {
  ContainerOptions options;
  REQUIRE(options.set(option("container-image"), "debian"));
  REQUIRE(options.set(option("container-devices"), "amd.com/gpu=0,amd.com/gpu=1"));
  REQUIRE(options.set(option("container-devices"), "amd.com/gpu=1,intel.com/gpu=card0"));
  const auto spec = options.finish();
  REQUIRE(spec);
  CHECK((*spec)->devices == std::vector<std::string>{"amd.com/gpu=0", "amd.com/gpu=1", "intel.com/gpu=card0"});

  ContainerOptions none;
  REQUIRE(none.set(option("container-image"), "debian"));
  REQUIRE(none.set(option("container-devices"), "none"));
  const auto without = none.finish();
  REQUIRE(without);
  CHECK((*without)->devices == std::vector<std::string>{"none"});

  ContainerOptions wrong;
  CHECK(error_of(wrong.set(option("container-devices"), "gpu")).find("\"gpu\" is no name of a device") !=
        std::string::npos);
  CHECK(error_of(wrong.set(option("container-devices"), "1nvidia.com/gpu=0")).find("no name") != std::string::npos);
  CHECK(error_of(wrong.set(option("container-devices"), "a/b=c,")).find("no name") != std::string::npos);
}

namespace {

ResolvedEnvironment of_file() {
  ResolvedEnvironment file;
  file.name = "mine";
  file.image = "of_file";
  file.workdir = "/file";
  file.mounts = {{"/a:/a", "f.toml:1: mounts"}, {"/b:/b", "f.toml:2: mounts"}, {"/a:/a", "f.toml:3: mounts"}};
  file.devices = {"amd.com/gpu=0"};
  file.variables = {"NAME=x", "GONE="};
  return file;
}

}  // namespace

TEST_CASE("the command line wins over variables, and these over an environment file") {
  ContainerOptions options;
  REQUIRE(options.set(option("environment"), "mine"));
  CHECK(options.environment() == "mine");
  options.use(of_file());
  ContainerSpec spec = spec_of(options);
  CHECK(spec.image == "of_file");
  CHECK(spec.writable == Tristate::yes);
  CHECK(spec.entrypoint == Tristate::yes);
  CHECK(spec.mounts.size() == 2);
  CHECK(spec.variables == std::vector<std::string>{"NAME=x", "GONE="});

  REQUIRE(options.set(option("container-readonly"), ""));
  REQUIRE(options.set(option("container-mounts"), "/c:/b"));
  REQUIRE(options.set(option("container-devices"), "amd.com/gpu=1"));
  REQUIRE(options.apply_environment(variables({{"SITULA_CONTAINER_IMAGE", "of_variable"},
                                               {"SITULA_CONTAINER_WORKDIR", "/variable"},
                                               {"SITULA_CONTAINER_ENTRYPOINT", "no"}})));
  REQUIRE(options.set(option("container-workdir"), "/option"));
  spec = spec_of(options);
  CHECK(spec.image == "of_variable");
  CHECK(spec.workdir == "/option");
  CHECK(spec.writable == Tristate::no);
  CHECK(spec.entrypoint == Tristate::no);
  REQUIRE(spec.mounts.size() == 2);
  CHECK(spec.mounts[0].source == "/a");
  CHECK(spec.mounts[0].origin == "f.toml:1: mounts");
  CHECK(spec.mounts[1].source == "/c");
  CHECK(spec.mounts[1].origin == "--container-mounts");
  CHECK(spec.devices == std::vector<std::string>{"amd.com/gpu=0", "amd.com/gpu=1"});

  ContainerOptions without;
  REQUIRE(without.set(option("environment"), "mine"));
  REQUIRE(without.set(option("container-devices"), "none"));
  without.use(of_file());
  CHECK(spec_of(without).devices == std::vector<std::string>{"none"});
}

TEST_CASE("an environment without an image makes no container of its own") {
  ContainerOptions options;
  REQUIRE(options.set(option("environment"), "mine"));
  ResolvedEnvironment file = of_file();
  file.image.clear();
  options.use(file);
  CHECK(options.warnings() == std::vector<std::string>{"ignoring --environment, which names no image, because neither "
                                                       "--container-image nor --container-name is set"});
  REQUIRE(options.set(option("container-image"), "debian"));
  CHECK(spec_of(options).workdir == "/file");
}

TEST_CASE("what the node hears of an environment file is checked there") {
  ContainerOptions options;
  REQUIRE(options.set(option("environment"), "mine"));
  const std::string text = of_file().to_text().value();
  CHECK(error_of(take_environment_file(options, variables({}))) == "--environment=mine did not reach this node");
  CHECK(take_environment_file(options, variables({})).error().code() == ErrorCode::environment_file);
  ContainerOptions other;
  REQUIRE(other.set(option("environment"), "other"));
  CHECK_FALSE(take_environment_file(other, variables({{kResolvedVariable, text}})));
  REQUIRE(take_environment_file(options, variables({{kResolvedVariable, text}})));
  CHECK(spec_of(options).image == "of_file");
  for (const auto& spoil : std::vector<void (*)(ResolvedEnvironment&)>{[](auto& file) { file.image = "A B"; },
                                                                       [](auto& file) {
                                                                         file.mounts = {{"x", "f.toml:1: mounts"}};
                                                                       },
                                                                       [](auto& file) { file.devices = {"x"}; },
                                                                       [](auto& file) { file.variables = {"1=2"}; },
                                                                       [](auto& file) { file.variables = {"NAME"}; }}) {
    ResolvedEnvironment file = of_file();
    spoil(file);
    options.use(file);
    CHECK_FALSE(options.finish());
  }
}

TEST_CASE("a srun inside a job has the environment that the job was submitted with") {
  const std::string text = of_file().to_text().value();
  const std::string inherited = "_SLURM_SPANK_OPTION_situla_environment";
  ContainerOptions options;
  options.inherit_environment(variables({{kResolvedVariable, text}, {inherited, "mine"}}));
  CHECK_FALSE(options.has_environment_of_job());
  REQUIRE(options.set(option("environment"), "mine"));
  CHECK(options.has_environment_of_job());
  CHECK(spec_of(options).image == "of_file");

  ContainerOptions dropped;
  dropped.inherit_environment(variables({{kResolvedVariable, text}, {inherited, "mine"}}));
  test::MemoryLog log;
  REQUIRE(read_environment_file(dropped, log));
  CHECK_FALSE(dropped.finish().value());

  ContainerOptions other;
  other.inherit_environment(variables({{kResolvedVariable, text}, {inherited, "other"}}));
  REQUIRE(other.set(option("environment"), "mine"));
  CHECK_FALSE(other.has_environment_of_job());
}
