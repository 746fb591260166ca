// situla doctor --cluster: which nodes are asked, and how do their answers look side by side?
#include <optional>

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "hooks/doctor/ask.hpp"
#include "hooks/doctor/checks.hpp"
#include "hooks/doctor/cluster/cluster.hpp"
#include "hooks/doctor/cluster/nodeset.hpp"
#include "hooks/doctor/slurm_files.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;
using doctor::ClusterReport;
using doctor::fold_nodes;
using doctor::NodeAnswer;
using doctor::Report;
using doctor::State;

namespace {

Report report_of(const std::string& host, State store, const std::string& found) {
  Report report;
  report.version = "1.2.3";
  report.host = host;
  report.tier = "kernel";
  report.sections = {
      {"node", "", {{"kernel", State::ok, "Linux 6.1", ""}}},
      {"situla", "", {{"store", store, found, store == State::ok ? "" : "chmod go-w", {{"free", "1 GiB free"}}}}}};
  return report;
}

NodeAnswer answered(const Report& report) {
  const std::string json = report.json();
  return {report.host, NodeAnswer::Kind::answered, "", *doctor::parse_report(json), json};
}

}  // namespace

TEST_CASE("node names are folded as Slurm does it") {
  CHECK(fold_nodes({"node02", "node01", "node03", "node05"}) == "node[01-03,05]");
  CHECK(fold_nodes({"node1"}) == "node1");
  CHECK(fold_nodes({"node8", "node9", "node10", "node10"}) == "node[8-10]");
  CHECK(fold_nodes({"node08", "node09", "node10", "node11"}) == "node[08-11]");
  CHECK(fold_nodes({"node009", "node010", "node099", "node100"}) == "node[009-010,099-100]");
  CHECK(fold_nodes({"login", "gpu1", "gpu2", "node1"}) == "gpu[1-2],login,node1");
  CHECK(fold_nodes({"r1n1.site", "r1n2.site", "r2n1.site"}) == "r1n[1-2].site,r2n1.site");
  CHECK(fold_nodes({}).empty());
  CHECK(fold_nodes({"n99999999999999999999999"}) == "n99999999999999999999999");
}

TEST_CASE("of sinfo's nodes each is asked once, in the default partition where it can be") {
  const auto nodes = doctor::parse_sinfo(
      "node10|batch|up|idle\nnode2|gpu|up|mixed\nnode2|batch*|up|mixed\nnode2|all|up|mixed\n"
      "node3|batch*|up|idle*\nnode4|batch*|up|drained\nnode5|batch*|down|idle\nnode5|gpu|up|idle\nnode6|batch*|up|idle~"
      "\nnode11|admin|up|reserved|2048\nnode11|off|down|reserved\nnode11|gpu|up|reserved|4096\n"
      "garbage\n");
  REQUIRE(nodes.size() == 7);
  CHECK((nodes[0].name == "node2" && nodes[0].partition == "batch" && nodes[0].obstacle.empty()));
  CHECK(nodes[1].obstacle == "idle, does not respond");
  CHECK(nodes[2].obstacle == "drained");
  CHECK((nodes[3].partition == "gpu" && nodes[3].obstacle.empty()));
  CHECK(nodes[4].obstacle == "idle, powered down");
  CHECK((nodes[5].name == "node10" && !nodes[5].reserved));
  CHECK(
      (nodes[6].partition == "admin" && nodes[6].obstacle.empty() && nodes[6].reserved && nodes[6].memory_mib == 2048));
}

TEST_CASE("nodes that agree are one line; differences are shown, free bytes are none") {
  ClusterReport cluster{{answered(report_of("node1", State::ok, "/s, 1 GiB free")),
                         answered(report_of("node2", State::ok, "/s, 1 GiB free"))}};
  cluster.nodes[1].report.sections[1].lines[0].found = "/s, 2 GiB free";
  cluster.nodes[1].report.sections[1].lines[0].facts = {{"free", "2 GiB free"}};
  CHECK_FALSE(cluster.failed());
  CHECK(cluster.text() ==
        "NODES      RESULT       OK  WARN  FAIL  IMAGES BY\n"
        "node[1-2]  ok            2     0     0  kernel\n"
        "\n"
        "all nodes that answered agree, and there is nothing to fix\n");

  cluster.nodes.push_back(answered(report_of("node3", State::fail, "/s is open, 1 GiB free")));
  cluster.nodes.push_back({"node4", NodeAnswer::Kind::not_asked, "drained", {}, ""});
  CHECK(cluster.failed());
  CHECK(cluster.text() ==
        "NODES      RESULT       OK  WARN  FAIL  IMAGES BY\n"
        "node[1-2]  ok            2     0     0  kernel\n"
        "node3      fail          1     0     1  kernel\n"
        "node4      not asked  drained\n"
        "\n"
        "CHECK          NODES      STATUS  FOUND\n"
        "situla: store  node[1-2]  ok      /s, ...\n"
        "               node3      fail    /s is open, 1 GiB free\n"
        "                                  fix: chmod go-w\n");
  CHECK(cluster.text(doctor::Colours::terminal).find("\033[1;31mfail\033[0m") != std::string::npos);

  const auto json = nlohmann::json::parse(cluster.json());
  CHECK(json["summary"] ==
        nlohmann::json({{"nodes", 4}, {"ok", 2}, {"warn", 0}, {"fail", 1}, {"noAnswer", 0}, {"notAsked", 1}}));
  CHECK(json["nodes"][2]["report"]["checks"][1]["fix"] == "chmod go-w");
  CHECK(json["nodes"][3]["report"].is_null());
  CHECK(json["nodes"][3]["reason"] == "drained");
}

TEST_CASE("a user is told that the nodes answered him, not root") {
  Report report = report_of("node1", State::ok, "/s");
  report.complete = false;
  const ClusterReport cluster{{answered(report)}};
  CHECK(cluster.text().find("\nIMAGES BY: for what you start yourself; only root's doctor") != std::string::npos);
}

TEST_CASE("a node that is asked in vain is a failure, one that is not asked is none") {
  ClusterReport cluster{{{"node4", NodeAnswer::Kind::not_asked, "drained", {}, ""}}};
  CHECK_FALSE(cluster.failed());
  cluster.nodes.push_back({"node5", NodeAnswer::Kind::silent, "Permission denied", {}, ""});
  CHECK(cluster.failed());
  CHECK(cluster.text() ==
        "NODES  RESULT       OK  WARN  FAIL  IMAGES BY\n"
        "node4  not asked  drained\n"
        "node5  no answer  Permission denied\n");
}

TEST_CASE("what is no report of a doctor is refused") {
  for (const char* text : {"", "{", "[]", "{}", "{\"checks\": 3}", "{\"checks\": [3]}"})
    CHECK_FALSE(doctor::parse_report(text));
  CHECK(doctor::parse_report(R"({"checks": [{"name": "x", "status": "new word"}]})")->sections[0].lines[0].state ==
        State::fail);
}

TEST_CASE("programs are asked side by side, each with its time") {
  const std::vector<std::string> environment = {"PATH=/usr/bin:/bin", "A=b"};
  const auto shell = [](const std::string& script) { return doctor::Question{"/bin/sh", {"-c", script}}; };
  const auto answers = doctor::ask_all({shell("echo $A; echo no >&2; exit 3"),
                                        shell("kill -9 $$"),
                                        {"/nonexistent", {}},
                                        shell("head -c 5000000 /dev/zero")},
                                       environment, {std::chrono::seconds(60), 4});
  REQUIRE(answers);
  CHECK((*answers)[0].output == "b\n");
  CHECK((*answers)[0].errors == "no\n");
  CHECK((*answers)[0].status.code == 3);
  CHECK((*answers)[1].status.signal == 9);
  CHECK_FALSE((*answers)[2].broken.empty());
  CHECK((*answers)[3].broken == "it prints more than 4.0 MiB");
  const auto begin = std::chrono::steady_clock::now();
  const auto late =
      doctor::ask_all({shell("echo in time"), shell("sleep 100")}, environment, {std::chrono::milliseconds(3000), 2});
  REQUIRE(late);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(60));
  CHECK((*late)[0].output == "in time\n");
  CHECK((*late)[1].late);
  CHECK(doctor::ask(shell("echo ' x '"), environment) == "x");
  CHECK_FALSE(doctor::ask(shell("exit 1"), environment));
}

TEST_CASE("without Slurm's commands --cluster says so") {
  Environment environment;
  environment.set("PATH", "/nonexistent");
  const auto asked = doctor::ask_cluster({}, environment);
  if (!asked) CHECK_FALSE(asked.error().hint().empty());
}

namespace {

/// A node whose files are in one directory.
struct RangeNode {
  test::TempDir dir;
  doctor::Places places;
  SiteConfig config;

  RangeNode() {
    places.etc = dir / "etc";
    places.proc = dir / "proc";
    config.id_ranges.files = SubordinateFiles::always;
  }
  doctor::Check with(const std::string& subuid, const std::string& subgid) const {
    REQUIRE(chmod(dir.write("etc/subuid", subuid).c_str(), 0644) == 0);
    REQUIRE(chmod(dir.write("etc/subgid", subgid).c_str(), 0644) == 0);
    return doctor::check_id_ranges(places, config);
  }
};

const std::string kLines = "alice:100000:65536\nbob:165536:65536\n";
const std::string kOtherLines = "alice:165536:65536\nbob:100000:65536\n";

}  // namespace

TEST_CASE("who has ids beside his own") {
  RangeNode node;
  CHECK(doctor::check_id_ranges(node.places, node.config).found == "0 users by /etc/subuid and /etc/subgid");
  const doctor::Check both = node.with(kLines, kLines);
  CHECK_THAT(both.found, Catch::StartsWith("2 users by /etc/subuid and /etc/subgid"));
  // The order, other lines and comments change nothing.
  CHECK(node.with("bob:165536:65536\nalice:100000:65536\n# lines\nalice:5:10\n", kLines).facts == both.facts);
  CHECK(node.with(kOtherLines, kLines).facts != both.facts);
  CHECK_THAT(node.with(kLines, "bob:165536:65536\n").found, Catch::StartsWith("1 user by "));
  CHECK(node.with("", kLines).facts.front().second == doctor::kNoRangeLines);
  node.config.id_ranges.files = SubordinateFiles::never;
  CHECK(node.with(kLines, kLines).found == "off: nobody is a whole root in containers");
  CHECK(node.with(kLines, kLines).facts.empty());
  node.config.id_ranges = {SubordinateFiles::always, {1000000000, 1000, 30000}};
  CHECK_THAT(node.with(kLines, kLines).found, Catch::Contains(", and uids from 1000 to 30999 by id_ranges"));
  if (geteuid() != 0) return;
  CHECK(node.with("carol:1000000005:65536\n", "").state == State::warn);
  CHECK_THAT(node.with("carol:1000000005:65536\n", "").found, Catch::Contains("which gives nobody any: "));
}

TEST_CASE("ranges in which somebody has an id") {
  const RangeNode node;
  // The two files are made up, the accounts are this machine's: each has uid 1, but /etc/passwd there does not.
  const doctor::Check taken = node.with("no-such-user:1:65535\n", "no-such-user:300000:65535\n");
  CHECK(taken.state == State::warn);
  CHECK_THAT(taken.found, Catch::Contains("; uid 1 is the account "));
  const doctor::Check group = node.with("no-such-user:300000:65535\n", "no-such-user:1:65535\n");
  CHECK_THAT(group.found, Catch::Contains("; gid 1 is the group "));
  if (geteuid() != 0) return;
  const std::string lines = "64901:300000:65536\nno-such-user:365534:65536\n";
  const doctor::Check refused = node.with(lines, lines);
  CHECK(refused.state == State::warn);
  CHECK_THAT(refused.found, Catch::Contains("; 64901 has none: ") && Catch::Contains("ids of no-such-user lie in it"));
}

TEST_CASE("what becomes of the processes and files of ranges") {
  const RangeNode node;
  (void)node.with(kLines, kLines);
  doctor::SlurmFiles slurm;
  const auto state_of = [&](const std::string& name) {
    for (const doctor::Check& check : check_ranges(node.places, node.config, slurm))
      if (check.name == name) return std::optional(check.state);
    return std::optional<State>();
  };
  CHECK_FALSE(state_of("range-processes"));  // there is no Slurm
  slurm.slurm_conf = "/etc/slurm/slurm.conf";
  for (const char* type : {"", "proctrack/cgroup", "cgroup"}) {
    slurm.proctrack = type;
    CHECK(state_of("range-processes") == State::ok);
  }
  for (const char* type : {"proctrack/linuxproc", "proctrack/pgid"}) {
    slurm.proctrack = type;
    CHECK(state_of("range-processes") == State::warn);
  }

  const auto mounts = [&](const std::string& text) {
    (void)node.dir.write("proc/self/mounts", text);
    return check_ranges(node.places, node.config, slurm).back();
  };
  const std::string closed =
      "/dev/sda1 / ext4 rw,relatime 0 0\ntmpfs /tmp tmpfs rw,nosuid,nodev 0 0\n/dev/sda2 /var ext4 rw 0 0\n"
      "/dev/sda3 /var/tmp ext4 rw,nosuid 0 0\ntmpfs /dev/shm tmpfs rw,nosuid 0 0\n";
  CHECK_THAT(mounts(closed).found, Catch::StartsWith("mounted without nosuid: /home; "));
  CHECK(mounts(closed).state == State::info);
  CHECK(mounts(closed + "server:/home /home nfs4 rw 0 0\n").state == State::ok);
  CHECK_THAT(mounts(closed + "/dev/sdb /tmp xfs rw 0 0\nserver:/home /home nfs4 rw 0 0\n").found,
             Catch::StartsWith("mounted without nosuid: /tmp; "));
  CHECK_THAT(mounts("/dev/sda1 / ext4 rw 0 0\n/dev/sda2 /tmpfiles ext4 rw,nosuid 0 0\n").found,
             Catch::StartsWith("mounted without nosuid: /tmp, /var/tmp, /dev/shm, /home; "));

  // Nobody has a range: nothing is said of them.
  (void)node.with("", "");
  CHECK(check_ranges(node.places, node.config, slurm).size() == 1);
}

TEST_CASE("nodes that give the same ids to different users, or to nobody") {
  const RangeNode files;
  const auto node = [&](const std::string& name, const std::string& subuid) {
    Report report = report_of(name, State::ok, "fine");
    report.sections[0].lines.push_back(files.with(subuid, kLines));
    return answered(report);
  };
  const auto differences = [&](const std::string& third) {
    std::string found;
    for (const doctor::Check& check :
         doctor::compare_nodes({node("node1", kLines), node("node2", kLines), node("node3", third)}))
      if (check.name == "id-ranges") found += check.found;
    return found;
  };
  CHECK(differences(kLines).empty());
  CHECK(differences(kOtherLines) ==
        "ranges by /etc/subuid and /etc/subgid differ: node[1-2] against node3; a user may be root over what others' "
        "containers write to a shared directory");
  CHECK(differences("") ==
        "ranges by /etc/subuid and /etc/subgid differ: node[1-2] against node3 (no ranges); containers with a range "
        "cannot be used where it is missing");

  RangeNode table, other;
  table.config.id_ranges.area = {1'000'000'000, 1000, 100};
  other.config.id_ranges.area = {1'000'000'000, 1001, 200};
  const auto with = [&](const RangeNode& range) {
    Report report = report_of(&range == &other ? "node2" : "node1", State::ok, "fine");
    report.sections[0].lines.push_back(range.with("", ""));
    return answered(report);
  };
  std::string found;
  for (const doctor::Check& check : doctor::compare_nodes({with(table), with(other)})) found += check.found;
  CHECK_THAT(found, Catch::Contains("the tables of id_ranges differ: 1000000000 for uid 1000: node1 against 1000000000 "
                                    "for uid 1001: node2; "));
  other.config.id_ranges.area = {1'000'000'000, 1000, 200};
  found.clear();
  for (const doctor::Check& check : doctor::compare_nodes({with(table), with(other)})) found += check.found;
  CHECK_THAT(found, !Catch::Contains("the tables of id_ranges"));
}
