#include "common/spec/site_config.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/base/text.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

TEST_CASE("an empty situla.toml gives the defaults") {
  const auto config = SiteConfig::parse("", "situla.toml");
  REQUIRE(config);
  CHECK(config->mount == MountKind::automatic);
  CHECK_FALSE(config->kernel_mount_user_images);
  CHECK(config->store_path == "/var/lib/situla");
  CHECK(config->service_user == "situla");
  CHECK(config->import_timeout == std::chrono::hours(1));
  CHECK(config->id_ranges == IdRangeRule{SubordinateFiles::automatic, {}});
  CHECK(SiteConfig::parse("id_ranges = \"auto\"", "x")->id_ranges == IdRangeRule{});
  CHECK(SiteConfig::parse("id_ranges = \"files\"", "x")->id_ranges == IdRangeRule{SubordinateFiles::always, {}});
  CHECK(SiteConfig::parse("id_ranges = \"off\"", "x")->id_ranges == IdRangeRule{SubordinateFiles::never, {}});
}

TEST_CASE("every key of situla.toml is understood") {
  const auto config = SiteConfig::parse(R"(
# a comment
mount = "fuse"
kernel_mount_user_images = true
store_path = "/scratch/situla//"
service_user = "images"
image_mount_idle = 5
root_tmpfs = 1048576
bytes_per_user = "20%"
import_timeout = 60
store_max = "80%"
image_age = 2592000
local_tier = "/nvme/situla/"
local_tier_max = "200GiB"
resolve = 600
resolve_choice = true
grant_lifetime = 7200
grant_offline = 0
json_log = true
job_comment = "admin_comment"
distribute = "sbcast"
build_timeout = 30
gpu = "nvidia-container-cli"
amd_gpu = "cdi"
intel_gpu = "off"
driver_root = "/run/nvidia/driver/"
device_root = "/run/nvidia"
hide_gpus = false
cuda_compat = false
cdi_directories = ["/srv/cdi"]
cdi_hooks = false
fabric = ["ucx", "cxi", "ucx"]
devices = ["amd.com/gpu=all", "situla.dev/hca=mlx5_0"]
id_ranges = { first = 1000000000, first_uid = 1000, users = 30000 }
)",
                                        "situla.toml");
  REQUIRE(config);
  CHECK(config->id_ranges == IdRangeRule{SubordinateFiles::automatic, {1000000000, 1000, 30000}});
  CHECK(config->mount == MountKind::fuse);
  CHECK(config->kernel_mount_user_images);
  CHECK(config->store_path == "/scratch/situla");
  CHECK(config->service_user == "images");
  CHECK(config->image_mount_idle == std::chrono::seconds(5));
  CHECK(config->root_tmpfs_bytes == 1048576);
  CHECK(config->bytes_per_user == DiskShare{20, 0});
  CHECK(config->import_timeout == std::chrono::seconds(60));
  CHECK(config->store_max == DiskShare{80, 0});
  CHECK(config->local_tier == "/nvme/situla");
  CHECK(config->local_tier_max == DiskShare{0, uint64_t{200} << 30U});
  CHECK(config->image_age == std::chrono::hours(720));
  CHECK(config->resolve == ResolveRule{ResolveRule::Kind::seconds, std::chrono::seconds(600)});
  CHECK(config->resolve_choice);
  CHECK(config->grant_lifetime == std::chrono::hours(2));
  CHECK(config->grant_offline == std::chrono::seconds(0));
  CHECK(config->json_log);
  CHECK(config->job_comment == JobComment::admin_comment);
  CHECK(config->distribute == Distribute::sbcast);
  CHECK(config->build_timeout == std::chrono::seconds(30));
  const DeviceSettings& devices = config->device_settings;
  CHECK(devices.gpu == GpuMode::nvidia_container_cli);
  CHECK(devices.amd_gpu == GpuMode::cdi);
  CHECK(devices.intel_gpu == GpuMode::off);
  CHECK(devices.driver_root == "/run/nvidia/driver");
  CHECK(devices.device_root == "/run/nvidia");
  CHECK_FALSE(devices.hide_gpus);
  CHECK_FALSE(devices.cuda_compat);
  CHECK(devices.cdi_directories == std::vector<std::string>{"/srv/cdi"});
  CHECK_FALSE(devices.cdi_hooks);
  CHECK(devices.fabric == std::vector<Fabric>{Fabric::cxi, Fabric::ucx});
  CHECK(devices.devices == std::vector<std::string>{"amd.com/gpu=all", "situla.dev/hca=mlx5_0"});
}

TEST_CASE("a mistake in situla.toml is named with its line and what is wanted") {
  struct Case {
    const char* text;
    const char* message;
  };
  for (const Case& c : {
           Case{"mount = \"auto\"\nmuont = \"auto\"\n", "s.toml:2: unknown key \"muont\""},
           Case{"[store]\npath = \"/x\"\n", "s.toml:1: unknown key \"store\""},
           Case{"mount = \"loop\"", "s.toml:1: mount must be \"auto\", \"kernel\", \"fuse\" or \"extract\""},
           Case{"mount = 1", "s.toml:1: mount must be"},
           Case{"kernel_mount_user_images = \"yes\"", "must be true or false"},
           Case{"id_ranges = \"yes\"", "id_ranges must be \"auto\", \"files\", \"off\" or { first = ID, "},
           Case{"id_ranges = { first = 1000000000, first_uid = 1000 }", "id_ranges must be"},
           Case{"id_ranges = { first = 1000000000, first_uid = 1000, users = 1, more = 1 }", "id_ranges must be"},
           Case{"id_ranges = { first = \"1\", first_uid = 1000, users = 1 }", "id_ranges must be"},
           Case{"id_ranges = { first = -1000000, first_uid = 1000, users = 1 }", "id_ranges must be"},
           Case{"id_ranges = { first = 1000000000, first_uid = 1000, users = 60000 }", "above 4294967294"},
           Case{"id_ranges = { first = 100000, first_uid = 1000, users = 200000 }", "none of them a user's own"},
           Case{"store_path = \"images\"", "store_path must be an absolute path"},
           Case{"local_tier = \"copies\"", "local_tier must be an absolute path"},
           Case{"service_user = \"root\"", "must be the name of a user other than root"},
           Case{"gpu = \"nvidia\"", "gpu must be \"native\", \"cdi\", \"nvidia-container-cli\" or \"off\""},
           Case{"amd_gpu = \"nvidia-container-cli\"", "amd_gpu must be \"native\", \"cdi\" or \"off\""},
           Case{"intel_gpu = true", "intel_gpu must be \"native\", \"cdi\" or \"off\""},
           Case{"driver_root = \"run/driver\"", "driver_root must be an absolute path"},
           Case{"hide_gpus = 1", "hide_gpus must be true or false"},
           Case{"devices = \"amd.com/gpu=0\"", "devices must be a list of names like \"vendor.com/class=name\""},
           Case{"fabric = [\"libfabric\"]", "fabric must be a list of \"cxi\", \"ofi\", \"ucx\" and \"mpi\""},
           Case{"fabric = \"ofi\"", "fabric must be a list of"},
           Case{"devices = [\"gpu\"]", "devices must be a list of names"},
           Case{"cdi_directories = [\"cdi\"]", "cdi_directories must be a list of absolute paths"},
           Case{"service_user = \"\"", "must be the name of a user other than root"},
           Case{"root_tmpfs = -1", "root_tmpfs must be a size"},
           Case{"store_reserve = \"a\"", "store_reserve must be a size such as \"2GiB\", or 0"},
           Case{"bytes_per_user = \"0%\"", "bytes_per_user must be a share such as \"50%\""},
           Case{"bytes_per_user = \"101%\"", "bytes_per_user must be a share such as \"50%\""},
           Case{"root_tmpfs = \"lots\"", "root_tmpfs must be a size"},
           Case{"resolve = \"sometimes\"", "resolve must be \"job\", \"always\" or a number of seconds"},
           Case{"job_comment = \"yes\"", "job_comment must be \"off\", \"comment\" or \"admin_comment\""},
           Case{"job_comment = true", "job_comment must be \"off\""},
           Case{"resolve = -5", "resolve must be \"job\", \"always\" or a number of seconds"},
           Case{"grant_lifetime = -1", "grant_lifetime must be a number of seconds, at least 0"},
           Case{"image_mount_idle = -1", "image_mount_idle must be a number of seconds, at least 0"},
           Case{"import_timeout = 0", "import_timeout must be a number of seconds"},
           Case{"import_timeout = \"1h\"", "import_timeout must be a number of seconds"},
           Case{"mount = ", "s.toml:1: "},
           Case{"mount = \"auto\"\nmount = \"fuse\"\n", "s.toml:2: "},
       }) {
    INFO(c.text);
    const auto config = SiteConfig::parse(c.text, "s.toml");
    REQUIRE_FALSE(config);
    CHECK(config.error().kind() == ErrorKind::usage);
    CHECK_THAT(config.error().message(), Catch::Contains(c.message));
  }
}

TEST_CASE("an unknown key of situla.toml comes with the one that was meant, and with all there are") {
  const auto hint = [](const char* text) { return SiteConfig::parse(text, "s.toml").error().hint(); };
  CHECK_THAT(hint("muont = \"auto\""), Catch::StartsWith("did you mean \"mount\"? known keys: mount, image_owner, "));
  CHECK_THAT(hint("storepath = \"/x\""), Catch::StartsWith("did you mean \"store_path\"? "));
  CHECK_THAT(hint("registries = 1"), Catch::StartsWith("did you mean \"registry\"? "));
  CHECK_THAT(hint("colour = \"blue\""), Catch::StartsWith("known keys: mount, "));
}

TEST_CASE("every key of situla.toml is in the sample") {
  const std::string sample = test::slurp(SITULA_SOURCE_DIR "/conf/situla.toml");
  const auto known_keys = [](const char* text) {
    const std::string hint = SiteConfig::parse(text, "x").error().hint();
    const auto words = split_words(std::string_view(hint).substr(hint.find(": ") + 2));
    std::vector<std::string> keys;
    for (const std::string_view word : words) keys.emplace_back(word.substr(0, word.find(',')));
    return keys;
  };
  const auto top = known_keys("zzzzzzzz = 1");
  REQUIRE(top.size() == 41);
  for (const std::string& key : top) {
    INFO(key);
    const std::string table = key == "registry" ? "[[registry]]" : "\n#   [limits]\n";
    CHECK(sample.find(key == "registry" || key == "limits" ? table : "\n#" + key + " = ") != std::string::npos);
  }
  for (const char* table : {"[limits]\nzzzzzzzz = 1", "[[registry]]\nzzzzzzzz = 1",
                            "[[registry]]\nprefix = \"a\"\n[[registry.mirror]]\nzzzzzzzz = 1"})
    for (const std::string& key : known_keys(table)) {
      INFO(key);
      CHECK(sample.find(key == "mirror" ? "[[registry.mirror]]" : "#   " + key + " = ") != std::string::npos);
    }
}

TEST_CASE("the names of the mount kinds go both ways") {
  for (const MountKind kind : {MountKind::automatic, MountKind::kernel, MountKind::fuse, MountKind::extract}) {
    const auto config = SiteConfig::parse("mount = \"" + std::string(to_string(kind)) + "\"", "x");
    REQUIRE(config);
    CHECK(config->mount == kind);
  }
}

TEST_CASE("a missing situla.toml is no error; one that others can write to is refused") {
  const test::TempDir dir;
  CHECK(SiteConfig::load(dir / "missing.toml"));

  const std::string path = dir.write("situla.toml", "mount = \"kernel\"\n");
  REQUIRE(chmod(path.c_str(), 0666) == 0);
  const auto writable = SiteConfig::load(path);
  REQUIRE_FALSE(writable);
  CHECK(writable.error().kind() == ErrorKind::denied);
  CHECK_FALSE(writable.error().hint().empty());

  REQUIRE(chmod(path.c_str(), 0644) == 0);
  const auto owned = SiteConfig::load(path);
  CHECK(owned.has_value() == (geteuid() == 0));
  if (owned) CHECK(owned->mount == MountKind::kernel);

  CHECK_FALSE(SiteConfig::load(dir.path()));
}

TEST_CASE("a situla.toml that belongs to another user is refused") {
  if (geteuid() != 0) return;  // an ordinary user's file is covered by the case above
  const test::TempDir dir;
  const std::string path = dir.write("situla.toml", "");
  REQUIRE(chmod(path.c_str(), 0644) == 0);
  REQUIRE(chown(path.c_str(), 1000, 1000) == 0);
  REQUIRE_FALSE(SiteConfig::load(path));
}

TEST_CASE("registries have mirrors, and mistakes have lines") {
  const auto config = SiteConfig::parse(R"(
mount = "auto"
[[registry]]
prefix = "Docker.io/library"
[[registry.mirror]]
location = "cache.test:5000/hub"
pull-from-mirror = "digest-only"
[[registry]]
location = "bad.test"
blocked = true
)",
                                        "t");
  REQUIRE(config);
  REQUIRE(config->registries.size() == 2);
  CHECK(config->registries[0] == RegistryRule{"docker.io/library",
                                              "",
                                              false,
                                              false,
                                              {{"cache.test:5000/hub", false, RegistryMirror::Pull::digest_only}},
                                              "t:3"});
  CHECK(config->registries[1].blocked);
  const auto message = [](const char* text) { return SiteConfig::parse(text, "t").error().text(); };
  CHECK(message("[[registry]]\nprefix = \"a\"\nmirrors = []\n") ==
        "t:3: unknown key \"mirrors\" [site-config]\nhint: did you mean \"mirror\"? known keys here: prefix, location, "
        "insecure, "
        "blocked, "
        "mirror-by-digest-only, mirror");
  CHECK(message("[[registry]]\nprefix = \"a\"\n[[registry]]\nprefix = \"a\"\n") ==
        "t:3: a second table for \"a\", the first one is at t:1 [site-config]");
  CHECK(message("[[registry]]\nprefix = \"a\"\n[[registry.mirror]]\nlocatoin = \"b\"\n")
            .starts_with(
                "t:4: unknown key \"locatoin\" [site-config]\nhint: did you mean \"location\"? known keys here: "));
  CHECK(message("[registry]\nprefix = \"a\"\n") == "t:1: registry must be tables, written [[registry]] [site-config]");
  CHECK(message("registries = 1\n").find("devices, registry") != std::string::npos);
}

TEST_CASE("limits of imports are sizes and counts") {
  const auto config = SiteConfig::parse("[limits]\nentries = 7\nmetadata = \"1GiB\"\nfile_size = 4096\n", "t");
  REQUIRE(config);
  CHECK(config->import_budget.entries == 7);
  CHECK(config->import_budget.metadata == uint64_t{1} << 30U);
  CHECK(config->import_budget.file_size == 4096);
  CHECK(config->import_budget.layers == ImportBudget().layers);
  const auto message = [](const char* text) { return SiteConfig::parse(text, "t").error().text(); };
  CHECK(message("[limits]\nentries = 0\n") == "t:2: entries must be a number, at least 1 [site-config]");
  CHECK(message("[limits]\nentries = \"1G\"\n") == "t:2: entries must be a number, at least 1 [site-config]");
  CHECK(message("[limits]\nxattrs = 0\n") == "t:2: xattrs must be a size such as \"64MiB\" [site-config]");
  CHECK(message("[limits]\nxattrs = \"0\"\n") == "t:2: xattrs must be a size such as \"64MiB\" [site-config]");
  CHECK(message("limits = 3\n") == "t:1: limits must be a table, written [limits] [site-config]");
  CHECK(message("[limits]\nlayer = 3\n")
            .starts_with(
                "t:2: unknown key \"layer\" [site-config]\nhint: did you mean \"layers\"? known keys: entries, "));
}

TEST_CASE("the limits that the sample shows are the defaults") {
  std::string sample = test::slurp(SITULA_SOURCE_DIR "/conf/situla.toml");
  sample = sample.substr(sample.find("#   [limits]\n"));
  std::string limits;
  for (const std::string_view line : split(sample, '\n'))
    if (line.starts_with("#   "))
      limits += std::string(line.substr(4)) + "\n";
    else
      break;
  const auto config = SiteConfig::parse(limits, "t");
  REQUIRE(config);
  CHECK(config->import_budget == ImportBudget());
}

TEST_CASE("the sample configuration that is installed is valid and changes nothing") {
  const std::string sample = test::slurp(SITULA_SOURCE_DIR "/conf/situla.toml");
  const auto as_shipped = SiteConfig::parse(sample, "conf/situla.toml");
  REQUIRE(as_shipped);

  // Every commented key, taken out of its comment, is a known key and says its own default.
  std::string uncommented;
  for (size_t at = 0; at < sample.size();) {
    size_t end = sample.find('\n', at);
    if (end == std::string::npos) end = sample.size();
    std::string line = sample.substr(at, end - at);
    if (line.size() > 1 && line[0] == '#' && line[1] != ' ' && line.find(" = ") != std::string::npos) line.erase(0, 1);
    uncommented += line + "\n";
    at = end + 1;
  }
  const auto full = SiteConfig::parse(uncommented, "conf/situla.toml");
  REQUIRE(full);
  const SiteConfig defaults;
  CHECK(uncommented != sample);
  CHECK(full->mount == defaults.mount);
  CHECK(full->kernel_mount_user_images == defaults.kernel_mount_user_images);
  CHECK(full->store_path == defaults.store_path);
  CHECK(full->service_user == defaults.service_user);
  CHECK(full->image_mount_idle == defaults.image_mount_idle);
  CHECK(full->root_tmpfs_bytes == defaults.root_tmpfs_bytes);
  CHECK(full->bytes_per_user == defaults.bytes_per_user);
  CHECK(full->import_timeout == defaults.import_timeout);
  CHECK(full->store_max == defaults.store_max);
  CHECK(full->image_age == defaults.image_age);
  CHECK(full->resolve == defaults.resolve);
  CHECK(full->resolve_choice == defaults.resolve_choice);
  CHECK(full->grant_lifetime == defaults.grant_lifetime);
  CHECK(full->grant_offline == defaults.grant_offline);
  CHECK(full->json_log == defaults.json_log);
  CHECK(full->job_comment == defaults.job_comment);
  CHECK(full->distribute == defaults.distribute);
  CHECK(full->build_timeout == defaults.build_timeout);
}
