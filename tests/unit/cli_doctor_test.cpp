// situla doctor: does it see what is there, and does it say what to do?
#include <cstdlib>
#include <set>

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "hooks/doctor/checks.hpp"
#include "hooks/doctor/doctor.hpp"
#include "hooks/doctor/slurm_files.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;
using doctor::Check;
using doctor::Places;
using doctor::SlurmFiles;
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
    places.plugin = dir / "plugins/spank_situla.so";
    places.runtime = dir / "run/situla";
    places.proc = dir / "proc";
    places.dev = dir / "dev";
    places.sys = dir / "sys";
    places.etc = dir / "etc";
    places.run = dir / "run";
  }
  void write(const std::string& path, const std::string& text, mode_t mode = 0644) const {
    REQUIRE(chmod(dir.write(path, text).c_str(), mode) == 0);
  }
  [[nodiscard]] SlurmFiles slurm() const { return SlurmFiles::find(places, environment); }
  [[nodiscard]] Check plugstack() const { return check_plugstack(places, slurm()); }
};

}  // namespace

TEST_CASE("a report fails when one check does, and says how to fix it") {
  doctor::Report report;
  report.tier = "fuse";
  report.host = "node1";
  report.sections = {
      {"one", "first things", {{"first", State::ok, "fine", ""}, {"second", State::warn, "so so", "do this"}}}};
  CHECK_FALSE(report.failed());
  CHECK(report.text() ==
        "first things\n"
        "  ok    first   fine\n"
        "  warn  second  so so\n"
        "                fix: do this\n"
        "\n"
        "node1: 1 warning; images by FUSE\n");
  report.sections.push_back({"two", "others", {{"third", State::fail, "broken \xff", "buy new", {{"price", "3"}}}}});
  CHECK(report.failed());
  CHECK_THAT(report.text(), Catch::EndsWith("node1: 1 check fails, 1 warning; images by FUSE\n"));
  CHECK(report.text(doctor::Colours::terminal).find("\033[1;31mfail\033[0m  third") != std::string::npos);
  const auto json = nlohmann::json::parse(report.json());
  CHECK(json["schema"] == 1);
  CHECK(json["host"] == "node1");
  CHECK(json["tier"] == "fuse");
  CHECK(json["summary"] == nlohmann::json({{"status", "fail"}, {"ok", 1}, {"info", 0}, {"warn", 1}, {"fail", 1}}));
  REQUIRE(json["checks"].size() == 3);
  CHECK(json["checks"][1]["section"] == "one");
  CHECK(json["checks"][2]["status"] == "fail");
  CHECK(json["checks"][2]["fix"] == "buy new");
  CHECK(json["checks"][2]["facts"]["price"] == "3");
}

TEST_CASE("who is not root is not told to do what only root can") {
  doctor::Report report;
  report.host = "node1";
  report.sections = {{"node",
                      "the node",
                      {{"loop", State::warn, "missing", "modprobe loop"},
                       {"namespaces", State::fail, "no", "see the line apparmor"},
                       {"fine", State::ok, "fine", ""}}},
                     {"user", "yours", {{"data", State::warn, "open", "chmod o-w /data"}}, true}};
  doctor::address_to_user(report);
  CHECK(report.find("loop")->fix == "ask the administrator: modprobe loop");
  CHECK(report.find("namespaces")->fix == "see the line apparmor");
  CHECK(report.find("fine")->fix.empty());
  CHECK(report.find("data")->fix == "chmod o-w /data");
}

TEST_CASE("the brief report: one line about images, one for each error") {
  doctor::Report report;
  report.tier = "kernel";
  report.sections = {{"one", "", {{"first", State::ok, "fine", ""}, {"second", State::warn, "so so", "do this"}}}};
  CHECK(report.brief() == "images by kernel mount\n");
  report.tier = "fuse";
  report.reason = "loop: /dev/loop-control is missing";
  report.sections.push_back({"two", "", {{"third", State::fail, "broken\nlog line", "buy new"}}});
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
  node.write("situla.toml", "mount = \"extract\"\n");
  if (geteuid() == 0) CHECK(reason() == "mount = \"extract\" in " + node.places.site_config);
  CHECK_FALSE(doctor::plugstack_wants_fuse(node.slurm()));
  node.write("etc/slurm/slurm.conf", "");
  node.write("etc/slurm/plugstack.conf", "required /x/spank_other.so use_squashfuse=1\nrequired spank_situla.so\n");
  CHECK_FALSE(doctor::plugstack_wants_fuse(node.slurm()));
  node.write("etc/slurm/plugstack.conf", "required spank_situla.so use_squashfuse=1 container_scope=job\n");
  CHECK(doctor::plugstack_wants_fuse(node.slurm()));
  CHECK_THAT(reason(), Catch::Contains("use_squashfuse=1 in plugstack.conf") || Catch::Contains("fuse") ||
                           Catch::Contains("overlay"));
}

TEST_CASE("the whole examination runs anywhere, names every check once, and says what to do") {
  Node node;
  node.places.proc = "/proc";
  node.places.dev = "/dev";
  node.write("etc/slurm/slurm.conf", "");
  doctor::Report report = doctor::examine(node.places, node.environment);
  doctor::examine_user(report, {node.dir / "data", node.dir / "cache", "/tmp", node.dir / "run"});
  std::set<std::string> names;
  for (const doctor::Section& section : report.sections)
    for (const Check& check : section.lines) {
      INFO(check.name);
      CHECK(names.insert(check.name).second);
      CHECK_FALSE(check.found.empty());
      CHECK((check.state == State::ok || check.state == State::info) == check.fix.empty());
      CHECK(check.fix.find('\n') == std::string::npos);
    }
  CHECK(report.failed());  // no programs, no plugin
  CHECK(names.contains("plugstack"));
  CHECK_FALSE(report.version.empty());
  CHECK(report.time.ends_with("Z"));
}

TEST_CASE("where there is no Slurm, what only its jobs need is no fault") {
  Node node;
  node.environment.set("PATH", "");
  node.write("situla.toml", "service_user = \"no-such-user-here\"\nstore_path = \"/nonexistent/store\"\n");
  if (geteuid() != 0 || doctor::find_program("srun", node.environment)) return;
  const doctor::Report report = doctor::examine(node.places, node.environment);
  REQUIRE(report.find("store") != nullptr);
  CHECK(report.find("store")->state == State::info);
  CHECK(report.find("service-user")->state == State::info);
  CHECK(report.find("slurm")->state == State::info);
  CHECK(report.find("plugstack") == nullptr);
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

TEST_CASE("what forbids user namespaces is named with its value") {
  Node node;
  const auto set = [&](const std::string& name, const std::string& value) {
    node.write("proc/sys/" + name, value + "\n");
  };
  CHECK(check_namespace_limits(node.places).state == State::ok);
  set("user/max_user_namespaces", "15000");
  set("user/max_mnt_namespaces", "15000");
  CHECK(check_namespace_limits(node.places).found == "user.max_user_namespaces=15000 user.max_mnt_namespaces=15000");
  set("user/max_user_namespaces", "100");
  CHECK(check_namespace_limits(node.places).state == State::warn);
  set("user/max_mnt_namespaces", "0");
  CHECK(check_namespace_limits(node.places).state == State::fail);
  CHECK_THAT(check_namespace_limits(node.places).fix, Catch::StartsWith("sysctl -w user.max_mnt_namespaces="));
  set("user/max_user_namespaces", "15000");
  set("user/max_mnt_namespaces", "15000");
  set("kernel/unprivileged_userns_clone", "1");
  CHECK(check_namespace_limits(node.places).state == State::ok);
  set("kernel/unprivileged_userns_clone", "0");
  CHECK(check_namespace_limits(node.places).state == State::fail);
  CHECK_THAT(check_namespace_limits(node.places).fix,
             Catch::StartsWith("sysctl -w kernel.unprivileged_userns_clone=1"));
}

TEST_CASE("Ubuntu's restriction of user namespaces needs a loaded profile") {
  Node node;
  CHECK(check_apparmor(node.places).state == State::ok);
  node.write("proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n");
  CHECK(check_apparmor(node.places).state == State::fail);
  CHECK_THAT(check_apparmor(node.places).fix, Catch::Contains("package"));
  node.write("etc/apparmor.d/usr.libexec.situla", "");
  CHECK(check_apparmor(node.places).state == State::info);  // nobody says what is loaded
  node.write("sys/kernel/security/apparmor/profiles", "chromium (enforce)\n");
  CHECK(check_apparmor(node.places).state == State::fail);
  CHECK_THAT(check_apparmor(node.places).fix, Catch::StartsWith("apparmor_parser -r "));
  node.write("sys/kernel/security/apparmor/profiles", "chromium (enforce)\nsitula (unconfined)\n");
  CHECK(check_apparmor(node.places).state == State::ok);
}

TEST_CASE("SELinux and the version of cgroups") {
  Node node;
  CHECK(check_selinux(node.places).state == State::ok);
  node.write("sys/fs/selinux/enforce", "0");
  CHECK(check_selinux(node.places).state == State::ok);
  node.write("sys/fs/selinux/enforce", "1");
  CHECK(check_selinux(node.places).state == State::info);
  CHECK(check_cgroups(node.places).state == State::info);
  node.write("proc/self/mounts",
             "cgroup /sys/fs/cgroup/memory cgroup rw 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n");
  CHECK(check_cgroups(node.places).found == "version 1");
  node.write("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
  CHECK(check_cgroups(node.places).found == "version 2");
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
  CHECK(doctor::check_service_user(config).state == State::warn);
  CHECK_THAT(doctor::check_service_user(config).found, Catch::Contains("each user imports his own images"));
  CHECK_THAT(doctor::check_service_user(config).fix, Catch::StartsWith("useradd "));
  CHECK(doctor::check_store(config).state == State::info);
  CHECK(doctor::check_import_user(config).state == State::info);
  config.service_user = "nobody";
  config.store_path = node.dir / "store";
  CHECK(doctor::check_store(config).state == State::warn);
  CHECK_THAT(doctor::check_store(config).fix, Catch::StartsWith("install -d -m 0700 -o nobody"));
  REQUIRE(mkdir(config.store_path.c_str(), 0700) == 0);
  CHECK_THAT(doctor::check_store(config).found, Catch::Contains("does not belong to nobody"));
  if (geteuid() == 0) {
    REQUIRE(chown(config.store_path.c_str(), 65534, 65534) == 0);
    CHECK(doctor::check_store(config).state != State::fail);
    // What is in it belongs to the importer, too.
    const std::string part = config.store_path + "/images";
    REQUIRE(mkdir(part.c_str(), 0755) == 0);
    CHECK_THAT(doctor::check_store(config).found, Catch::StartsWith(part));
    REQUIRE(chown(part.c_str(), 65534, 65534) == 0);
    CHECK(doctor::check_store(config).state != State::fail);
    REQUIRE(chmod(config.store_path.c_str(), 0777) == 0);
    CHECK_THAT(doctor::check_store(config).fix, Catch::StartsWith("chmod 700 "));
  }
}

TEST_CASE("the configuration is for everybody to read and for root to write") {
  Node node;
  if (geteuid() != 0) return;
  node.places.site_config = node.dir / "situla/situla.toml";
  CHECK(check_configuration_directory(node.places).state == State::ok);
  SiteConfig config;
  node.write("situla/situla.toml", "", 0600);
  CHECK_THAT(check_site_config(node.places, config).found, Catch::Contains("mode 0600"));
  CHECK_THAT(check_site_config(node.places, config).fix, Catch::StartsWith("chmod 644 "));
  REQUIRE(chmod((node.dir / "situla").c_str(), 0700) == 0);
  CHECK_THAT(check_configuration_directory(node.places).fix, Catch::StartsWith("chmod 755 "));
  REQUIRE(chmod((node.dir / "situla").c_str(), 0777) == 0);
  CHECK_THAT(check_configuration_directory(node.places).found, Catch::Contains("written by others"));
  REQUIRE(chmod((node.dir / "situla").c_str(), 0755) == 0);
  CHECK(check_configuration_directory(node.places).state == State::ok);

  CHECK(check_runtime_directory(node.places).state == State::ok);  // the first job makes it
  node.dir.write("run/situla/file", "");
  REQUIRE(chmod(node.places.runtime.c_str(), 0755) == 0);
  CHECK(check_runtime_directory(node.places).state == State::ok);
  REQUIRE(chmod(node.places.runtime.c_str(), 0775) == 0);
  CHECK_THAT(check_runtime_directory(node.places).found, Catch::Contains("mode 0775"));
  CHECK_THAT(check_runtime_directory(node.places).fix, Catch::StartsWith("install -d -m 0755 -o root"));
}

TEST_CASE("the directories of a user, there or not") {
  Node node;
  const Check there = check_user_directory("data", node.dir.path(), doctor::Use::data);
  CHECK(there.state != State::fail);
  CHECK_THAT(there.found, Catch::Contains(" free"));
  CHECK_THAT(check_user_directory("data", node.dir / "a/b/c", doctor::Use::data).found,
             Catch::Contains("(made when it is needed)"));
  node.write("file", "");
  CHECK_THAT(check_user_directory("cache", node.dir / "file", doctor::Use::cache).found,
             Catch::Contains("no directory"));
  CHECK(check_user_directory("cache", "", doctor::Use::cache).state == State::warn);
  CHECK(check_user_directory("cache", "here/enroot", doctor::Use::cache).state == State::warn);
  // /dev/shm is memory, and /proc holds no files of users.
  CHECK_THAT(check_user_directory("cache", "/dev/shm", doctor::Use::cache).found, Catch::Contains("take memory"));
  if (geteuid() != 0)
    CHECK_THAT(check_user_directory("data", "/nonexistent/x", doctor::Use::data).found,
               Catch::Contains("is not yours"));
}

TEST_CASE("installed programs and plugin") {
  Node node;
  CHECK_THAT(check_programs(node.places).found, Catch::Contains("situla-broker, situla-builder, situla-importer"));
  for (const char* name : {"libexec/situla-broker", "libexec/situla-builder", "libexec/situla-importer"})
    node.write(name, "", 0755);
  CHECK(check_programs(node.places).state == State::ok);
  CHECK(check_slurm_plugin(node.places).state == State::fail);
  CHECK_THAT(check_slurm_plugin(node.places).fix, Catch::Contains("situla-slurm-plugin"));
  node.write("plugins/spank_situla.so", "");
  REQUIRE(chmod((node.dir / "plugins").c_str(), 0755) == 0);
  if (geteuid() != 0) return;
  CHECK(check_slurm_plugin(node.places).state == State::ok);
  REQUIRE(chmod((node.dir / "plugins").c_str(), 0777) == 0);
  CHECK_THAT(check_slurm_plugin(node.places).fix, Catch::StartsWith("chmod go-w "));
  REQUIRE(chown(node.places.plugin.c_str(), 65534, 65534) == 0);
  CHECK_THAT(check_slurm_plugin(node.places).found, Catch::Contains("uid 65534"));
}

TEST_CASE("versions of Slurm, as its programs say them and as a plugin has them") {
  CHECK(doctor::parse_slurm_version("slurm 23.11.4\n")->text() == "23.11.4");
  CHECK(doctor::parse_slurm_version("slurm-wlm 22.05.8")->release() == "22.05");
  CHECK(doctor::parse_slurm_version("slurm 26.05.0-0rc1")->text() == "26.05.0");
  for (const char* text : {"", "slurm", "slurm x.y", "bash: srun: command not found"})
    CHECK_FALSE(doctor::parse_slurm_version(text));
  CHECK(doctor::parse_slurm_version("slurm 23.11.4")->fits(*doctor::parse_slurm_version("slurm 23.11.9")));
  CHECK_FALSE(doctor::parse_slurm_version("slurm 23.11.4")->fits(*doctor::parse_slurm_version("slurm 23.02.4")));

  Node node;
  const std::string source =
      node.dir.write("plugin.c",
                     "const char plugin_name[] = \"x\"; const unsigned int spank_plugin_version = 1;\n"
                     "const unsigned int plugin_version = (23 << 16) | (11 << 8) | 4;\n");
  REQUIRE(std::system(
              ("cc -shared -fPIC -o " + shell_quote(node.dir / "plugin.so") + " " + shell_quote(source)).c_str()) == 0);
  CHECK(doctor::version_built_for(node.dir / "plugin.so")->text() == "23.11.4");
  node.write("none.so", "\177ELF and nothing more");
  CHECK_FALSE(doctor::version_built_for(node.dir / "none.so"));
  CHECK_FALSE(doctor::version_built_for("/proc/self/exe"));
  // Cut off anywhere, it is an error and nothing worse.
  const std::string whole = *read_file(node.dir / "plugin.so");
  for (size_t size = 0; size < whole.size(); size += 97) {
    node.write("cut.so", whole.substr(0, size));
    (void)doctor::version_built_for(node.dir / "cut.so");
  }

  const auto slurm_says = [&](const std::string& version) {
    node.write("bin/srun", "#!/bin/sh\necho slurm " + version + "\n", 0755);
    node.write("bin/slurmd", "#!/bin/sh\necho slurm " + version + "\n", 0755);
    node.environment.set("PATH", node.dir / "bin");
    node.places.plugin = node.dir / "plugin.so";
    return check_slurm_version(node.places, node.environment);
  };
  CHECK(slurm_says("23.11.10").state == State::ok);
  CHECK(slurm_says("23.11.10").found == "srun 23.11.10, slurmd 23.11.10; the plugin is for 23.11");
  CHECK(slurm_says("24.05.0").state == State::fail);
  CHECK_THAT(slurm_says("24.05.0").fix, Catch::Contains("built for Slurm 24.05"));
}

TEST_CASE("the plugstack line is found where Slurm would find it") {
  Node node;
  node.environment.set("PATH", "/nonexistent");
  CHECK(node.slurm().slurm_conf.empty());
  node.write("plugins/spank_situla.so", "");
  node.write("plugins/select_cons_tres.so", "");
  node.write("etc/slurm/slurm.conf", "ClusterName=test\n");
  CHECK(node.plugstack().state == State::fail);
  CHECK_THAT(node.plugstack().fix, Catch::Contains("required " + node.places.plugin));

  node.write("etc/slurm/plugstack.conf", "# required spank_situla.so\noptional /x/other.so\n");
  CHECK(node.plugstack().state == State::fail);
  node.write("etc/slurm/plugstack.conf.d/situla.conf", "required spank_situla.so # ours\n");
  CHECK_THAT(node.plugstack().fix, Catch::Contains("include ") && Catch::Contains("plugstack.conf.d/*.conf"));
  node.write("etc/slurm/plugstack.conf", "include plugstack.conf.d/s[a-j]*.con?\n");
  CHECK(node.plugstack().state == State::ok);
  CHECK_THAT(node.plugstack().found, Catch::Contains("situla.conf: required " + node.places.plugin));

  node.write("etc/slurm/plugstack.conf.d/situlb.conf", "required /usr/lib/spank_pyxis.so\n");
  CHECK(node.plugstack().state == State::fail);
  CHECK_THAT(node.plugstack().fix, Catch::Contains("situlb.conf"));
  node.write("etc/slurm/plugstack.conf.d/situlb.conf", "optional spank_situla.so\n");
  CHECK_THAT(node.plugstack().found, Catch::Contains("both load"));

  node.write("elsewhere.conf", "optional " + node.places.plugin + "\n");
  node.write("etc/slurm/slurm.conf", "include more.conf\n");
  node.write("etc/slurm/more.conf", "PlugStackConfig = " + (node.dir / "elsewhere.conf") + " # here\n");
  CHECK(node.plugstack().state == State::ok);
  CHECK_THAT(node.plugstack().found, Catch::Contains("jobs run without it"));
  node.write("elsewhere.conf", "required /opt/none/spank_situla.so\n");
  CHECK_THAT(node.plugstack().found, Catch::Contains("/opt/none/spank_situla.so is not there"));
  CHECK_THAT(node.plugstack().fix, Catch::Contains(node.places.plugin));
  node.write("elsewhere.conf", "requires " + node.places.plugin + "\n");
  CHECK(node.plugstack().state == State::fail);

  // SLURM_CONF decides, and is believed even where nothing is.
  node.write("other/slurm.conf", "PluginDir=" + (node.dir / "none") + ":" + (node.dir / "plugins") + "\n");
  node.write("other/plugstack.conf", "required spank_situla.so\n");
  node.environment.set("SLURM_CONF", node.dir / "other/slurm.conf");
  CHECK(node.plugstack().state == State::ok);
  CHECK_THAT(node.plugstack().found, Catch::Contains("found by SLURM_CONF"));
  node.write("other/slurm.conf", "PluginDir=" + (node.dir / "none") + "\n");
  CHECK_THAT(node.plugstack().found, Catch::Contains("is not there"));
  node.environment.set("SLURM_CONF", node.dir / "missing/slurm.conf");
  CHECK(node.plugstack().state == State::fail);
}

TEST_CASE("nodes without files of their own, and a slurmd that was told") {
  Node node;
  node.write("run/slurm/conf/slurm.conf", "");
  CHECK(node.slurm().from == "configless");
  CHECK_THAT(node.plugstack().fix, Catch::Contains("of the controller"));
  node.write("etc/slurm/slurm.conf", "");
  CHECK(node.slurm().from.empty());
  node.write("proc/77/comm", "slurmd\n");
  node.write("proc/77/cmdline", std::string("slurmd\0-D\0-f\0/srv/slurm.conf\0", 29));
  CHECK(node.slurm().slurm_conf == "/srv/slurm.conf");
  CHECK(node.slurm().from == "slurmd -f");
  // Another program under that name is not asked.
  std::filesystem::create_symlink("/usr/bin/sudo", node.dir / "proc/77/exe");
  CHECK(node.slurm().from.empty());
}

TEST_CASE("a plugin by name alone has to lie where Slurm's own plugins do") {
  Node node;
  node.write("etc/slurm/slurm.conf", "");
  node.write("etc/slurm/plugstack.conf", "required spank_situla.so\n");
  node.write("plugins/spank_situla.so", "");
  CHECK(node.plugstack().state == State::warn);
  CHECK(node.plugstack().fix == "write the path: required " + node.places.plugin);
}

TEST_CASE("the plugin's arguments are those that the plugin understands") {
  Node node;
  node.write("etc/slurm/slurm.conf", "");
  const auto arguments = [&](const std::string& words) {
    node.write("etc/slurm/plugstack.conf", "required spank_situla.so " + words + "\n");
    return check_plugin_arguments(node.slurm());
  };
  CHECK(arguments("").found == "none");
  CHECK(arguments("container_scope=job sbatch_support=0").state == State::ok);
  CHECK(arguments("contaner_scope=job").state == State::fail);
  CHECK_THAT(arguments("contaner_scope=job").fix, Catch::Contains("container_scope"));
  CHECK(arguments("sbatch_support=perhaps").state == State::fail);
  CHECK(arguments("importer=/nonexistent/importer").state == State::warn);
}

TEST_CASE("when a job's image is begun depends on when its prolog runs") {
  Node node;
  const auto found = [&](const std::string& slurm_conf, const std::string& words) {
    node.write("etc/slurm/slurm.conf", slurm_conf);
    node.write("etc/slurm/plugstack.conf", "required spank_situla.so " + words + "\n");
    return check_prolog(node.slurm()).found;
  };
  for (const char* flags : {"Alloc", "alloc,NoHold", "X11", "NoHold,Contain"})
    CHECK(found("PrologFlags=" + std::string(flags) + "\n", "") == "fetched on all nodes of a job when it starts");
  for (const char* line : {"", "PrologFlags=Serial\n"})
    CHECK_THAT(found(line, ""), Catch::Contains("on others with their first step"));
  for (const char* words : {"prolog_prefetch=0", "importer=/bin/true"})
    CHECK_THAT(found("PrologFlags=Alloc\n", words), Catch::Contains("none"));
}

TEST_CASE("includes that include themselves, or nothing") {
  Node node;
  node.write("etc/slurm/slurm.conf", "");
  node.write("etc/slurm/plugstack.conf", "include plugstack.conf\n");
  CHECK_THAT(node.plugstack().found, Catch::Contains("too deep"));
  std::string tenfold;
  for (int i = 0; i < 10; ++i) tenfold += "include plugstack.conf\n";
  node.write("etc/slurm/plugstack.conf", tenfold);
  CHECK_THAT(node.plugstack().found, Catch::Contains("too deep"));
  node.write("etc/slurm/plugstack.conf", "include none.conf\n");
  CHECK_THAT(node.plugstack().found, Catch::Contains("none.conf"));
  node.write("etc/slurm/plugstack.conf", "include none.d/*.conf\n");
  CHECK_THAT(node.plugstack().found, Catch::Contains("does not load"));
}
