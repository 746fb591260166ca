// situla doctor: does it see what is there, and does it say what to do?
#include <set>

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "hooks/cli/doctor/checks.hpp"
#include "hooks/cli/doctor/doctor.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;
using doctor::Check;
using doctor::Places;
using doctor::State;

namespace {

/// A node whose files are all in one directory.
struct Node {
  test::TempDir dir;
  Places places;
  Environment environment;

  Node() {
    places.site_config = dir / "situla.toml";
    places.libexec = dir / "libexec";
    places.plugin = dir / "spank_situla.so";
    places.proc = dir / "proc";
    places.dev = dir / "dev";
    places.slurm_conf = dir / "slurm/slurm.conf";
  }
};

}  // namespace

TEST_CASE("a report fails when one check does, and says how to mend it") {
  doctor::Report report;
  report.tier = "fuse";
  report.checks = {{"first", State::ok, "fine", ""}, {"second", State::warn, "so so", "do this"}};
  CHECK_FALSE(report.failed());
  CHECK_THAT(report.text(), Catch::Contains("ok    first   fine\n") && Catch::Contains("warn  second  so so\n") &&
                                Catch::Contains("fix: do this\n") && Catch::Contains("fuse"));
  report.checks.push_back({"third", State::fail, "broken \xff", "buy new"});
  CHECK(report.failed());
  const auto json = nlohmann::json::parse(report.json());
  CHECK(json["ok"] == false);
  CHECK(json["tier"] == "fuse");
  CHECK(json["checks"].size() == 3);
  CHECK(json["checks"][2]["state"] == "fail");
  CHECK(json["checks"][2]["fix"] == "buy new");
}

TEST_CASE("the brief report: one line about images, one for each error") {
  doctor::Report report;
  report.tier = "kernel";
  report.checks = {{"first", State::ok, "fine", ""}, {"second", State::warn, "so so", "do this"}};
  CHECK(report.brief() == "images by kernel mount\n");
  report.tier = "fuse";
  report.reason = "loop: /dev/loop-control is missing";
  report.checks.push_back({"third", State::fail, "broken\nlog line", "buy new"});
  CHECK(report.brief() ==
        "images by FUSE (loop: /dev/loop-control is missing)\nerror: third: broken\\x0alog line; fix: buy new\n");
  report.tier = "extract";
  CHECK_THAT(report.brief(), Catch::StartsWith("images by extraction (loop: "));
  report.tier = "none";
  report.reason = "user-namespaces: Operation not permitted";
  CHECK_THAT(report.brief(), Catch::StartsWith("no containers (user-namespaces: Operation not permitted)\n"));
}

TEST_CASE("what the site chose is the reason for its tier") {
  Node node;
  const auto reason = [&] { return doctor::examine(node.places, node.environment).reason; };
  if (doctor::check_user_namespaces(node.places).state != State::ok) return;
  const std::string path = node.dir.write("situla.toml", "mount = \"extract\"\n");
  REQUIRE(chmod(path.c_str(), 0644) == 0);
  if (geteuid() == 0) CHECK(reason() == "mount = \"extract\" in " + path);
  CHECK_FALSE(doctor::plugstack_wants_fuse(node.places, node.environment));
  node.dir.write("slurm/slurm.conf", "");
  node.dir.write("slurm/plugstack.conf", "required /x/spank_other.so use_squashfuse=1\nrequired spank_situla.so\n");
  CHECK_FALSE(doctor::plugstack_wants_fuse(node.places, node.environment));
  node.dir.write("slurm/plugstack.conf", "required spank_situla.so use_squashfuse=1 container_scope=job\n");
  CHECK(doctor::plugstack_wants_fuse(node.places, node.environment));
  CHECK_THAT(reason(), Catch::Contains("use_squashfuse=1 in plugstack.conf") || Catch::Contains("fuse") ||
                           Catch::Contains("overlay"));
}

TEST_CASE("the whole examination runs anywhere and names every check once") {
  Node node;
  node.places.proc = "/proc";
  node.places.dev = "/dev";
  const doctor::Report report = doctor::examine(node.places, node.environment);
  std::set<std::string> names;
  for (const Check& check : report.checks) {
    INFO(check.name);
    CHECK(names.insert(check.name).second);
    CHECK_FALSE(check.found.empty());
    CHECK((check.state == State::ok || !check.fix.empty()));
  }
  CHECK(report.failed());  // no programs, no plugin
}

TEST_CASE("kernel versions") {
  Node node;
  struct Case {
    const char* release;
    State state;
  };
  for (const Case& c : {Case{"6.18.1", State::ok}, Case{"5.11.0-rc1", State::ok}, Case{"5.10.0-30-amd64", State::warn},
                        Case{"4.18.0-553.el8", State::warn}, Case{"3.10.0-1160.el7", State::fail}}) {
    INFO(c.release);
    node.dir.write("proc/sys/kernel/osrelease", std::string(c.release) + "\n");
    CHECK(check_kernel(node.places).state == c.state);
    CHECK_THAT(check_kernel(node.places).found, Catch::Contains(c.release));
  }
}

TEST_CASE("squashfs and loop") {
  Node node;
  node.dir.write("proc/filesystems", "nodev\ttmpfs\n\text4\n");
  CHECK(check_squashfs(node.places).state == State::warn);
  CHECK_THAT(check_squashfs(node.places).fix, Catch::Contains("modprobe squashfs"));
  node.dir.write("proc/filesystems", "nodev\ttmpfs\n\tsquashfs\n");
  CHECK(check_squashfs(node.places).state == State::ok);
  CHECK(check_loop(node.places).state == State::warn);
  CHECK_THAT(check_loop(node.places).fix, Catch::Contains("modprobe loop"));
}

TEST_CASE("FUSE needs the device, open to users") {
  Node node;
  CHECK_THAT(check_fuse(node.places).fix, Catch::Contains("modprobe fuse"));
  const std::string device = node.dir.write("dev/fuse", "");
  REQUIRE(chmod(device.c_str(), 0600) == 0);
  CHECK_THAT(check_fuse(node.places).fix, Catch::Contains("chmod 666"));
  REQUIRE(chmod(device.c_str(), 0666) == 0);
  CHECK(check_fuse(node.places).state == State::ok);
}

TEST_CASE("find_program looks along PATH first") {
  Node node;
  const std::string tool = node.dir.write("bin/no-such-tool-elsewhere", "");
  REQUIRE(chmod(tool.c_str(), 0755) == 0);
  CHECK_FALSE(doctor::find_program("no-such-tool-elsewhere", node.environment));
  node.environment.set("PATH", "/nowhere:" + (node.dir / "bin"));
  CHECK(doctor::find_program("no-such-tool-elsewhere", node.environment) == tool);
  CHECK(doctor::find_program("sh", node.environment));
}

TEST_CASE("the site's configuration, service user and store") {
  Node node;
  SiteConfig config;
  CHECK(check_site_config(node.places, config).state == State::ok);
  const std::string path = node.dir.write("situla.toml", "nonsense = 1\n");
  REQUIRE(chmod(path.c_str(), 0644) == 0);
  CHECK(check_site_config(node.places, config).state == State::fail);

  config.service_user = "no-such-user-here";
  CHECK(doctor::check_service_user(config).state == State::fail);
  CHECK_THAT(doctor::check_service_user(config).fix, Catch::StartsWith("useradd "));
  config.service_user = "nobody";
  config.store_path = node.dir / "store";
  CHECK_THAT(doctor::check_store(config).fix, Catch::StartsWith("install -d -m 0755 -o nobody"));
  REQUIRE(mkdir(config.store_path.c_str(), 0755) == 0);
  CHECK_THAT(doctor::check_store(config).found, Catch::Contains("does not belong to nobody"));
  if (geteuid() == 0) {
    REQUIRE(chown(config.store_path.c_str(), 65534, 65534) == 0);
    CHECK(doctor::check_store(config).state != State::fail);
    REQUIRE(chmod(config.store_path.c_str(), 0777) == 0);
    CHECK_THAT(doctor::check_store(config).fix, Catch::StartsWith("chmod go-w "));
  }
}

TEST_CASE("installed programs and plugin") {
  Node node;
  CHECK_THAT(check_programs(node.places).found, Catch::Contains("situla-broker, situla-builder, situla-importer"));
  for (const char* name : {"libexec/situla-broker", "libexec/situla-builder", "libexec/situla-importer"})
    REQUIRE(chmod(node.dir.write(name, "").c_str(), 0755) == 0);
  CHECK(check_programs(node.places).state == State::ok);
  CHECK(check_slurm_plugin(node.places).state == State::fail);
  node.dir.write("spank_situla.so", "");
  CHECK(check_slurm_plugin(node.places).state == State::ok);
}

TEST_CASE("the plugstack line is found where Slurm would find it") {
  Node node;
  CHECK(check_plugstack(node.places, node.environment).state == State::warn);  // no Slurm here
  node.dir.write("slurm/slurm.conf", "ClusterName=test\n");
  const Check missing = check_plugstack(node.places, node.environment);
  CHECK(missing.state == State::fail);
  CHECK_THAT(missing.fix, Catch::Contains("required " + node.places.plugin));

  node.dir.write("slurm/plugstack.conf", "# required spank_situla.so\noptional other.so\n");
  CHECK(check_plugstack(node.places, node.environment).state == State::fail);

  node.dir.write("slurm/plugstack.conf", "include plugstack.conf.d/*.conf\n");
  node.dir.write("slurm/plugstack.conf.d/situla.conf", "required spank_situla.so # ours\n");
  CHECK(check_plugstack(node.places, node.environment).state == State::ok);

  node.dir.write("slurm/plugstack.conf.d/pyxis.conf", "required /usr/lib/spank_pyxis.so\n");
  const Check both = check_plugstack(node.places, node.environment);
  CHECK(both.state == State::fail);
  CHECK_THAT(both.fix, Catch::Contains("spank_pyxis.so"));

  node.dir.write("elsewhere.conf", "required /opt/spank_situla.so\n");
  node.dir.write("slurm/slurm.conf", "PlugStackConfig = " + (node.dir / "elsewhere.conf") + " # here\n");
  CHECK(check_plugstack(node.places, node.environment).state == State::ok);

  node.places.slurm_conf.clear();
  node.environment.set("SLURM_CONF", node.dir / "slurm/slurm.conf");
  CHECK(check_plugstack(node.places, node.environment).state == State::ok);
}

TEST_CASE("an include that includes itself ends") {
  Node node;
  node.dir.write("slurm/slurm.conf", "");
  node.dir.write("slurm/plugstack.conf", "include plugstack.conf\n");
  CHECK(check_plugstack(node.places, node.environment).state == State::fail);
}
