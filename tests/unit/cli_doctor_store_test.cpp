// situla doctor: which way of keeping the store is in effect, does what it needs work, and is it the same on all nodes?
#include <ctime>

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "common/base/scope_exit.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "common/sys/mount/mount_api.hpp"
#include "hooks/doctor/checks.hpp"
#include "hooks/doctor/cluster/cluster.hpp"
#include "hooks/doctor/doctor.hpp"
#include "hooks/doctor/store_checks.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

using Catch::Contains;
using Catch::StartsWith;
using doctor::Check;
using doctor::NodeAnswer;
using doctor::Report;
using doctor::State;
using doctor::StoreMode;

namespace {

const MountedFrom kNfs{"nfs4", "server:/export", FileSystemKind::network};
const MountedFrom kXfs{"xfs", "/dev/sda1", FileSystemKind::local};

/// Programs in a directory of their own, which is all of PATH that matters.
struct Programs {
  test::TempDir dir;
  Environment environment;
  Programs() { environment.set("PATH", dir / "bin"); }
  void write(const std::string& name, const std::string& script) const {
    REQUIRE(chmod(dir.write("bin/" + name, "#!/bin/sh\n" + script + "\n").c_str(), 0755) == 0);
  }
};

/// What one node answered; each field may be changed before it is compared.
struct Answering {
  std::string name, mode = "shared", path = "/store", id = "aa", uid = "998", version = "1.0";
  int64_t ahead = 0;  ///< seconds

  [[nodiscard]] NodeAnswer answer() const {
    using std::chrono::system_clock;
    NodeAnswer node{name, NodeAnswer::Kind::answered, "", {}, ""};
    node.asked = system_clock::now() - std::chrono::seconds(2);
    node.answered = node.asked + std::chrono::seconds(1);
    const time_t time = system_clock::to_time_t(node.asked) + ahead;
    tm parts{};
    gmtime_r(&time, &parts);
    std::array<char, 32> text{};
    node.report.time = {text.data(), strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts)};
    node.report.version = version;
    node.report.sections = {{"store",
                             "",
                             {{"service-user", State::ok, "", "", {{"uid", uid}}},
                              {"store-mode", State::ok, "", "", {{"mode", mode}, {"path", path}}},
                              {"store-access", State::ok, "", "", {{"id", id}}}}}};
    return node;
  }
};

std::vector<Check> compared(const std::vector<Answering>& nodes) {
  std::vector<NodeAnswer> answers;
  for (const Answering& node : nodes) answers.push_back(node.answer());
  return doctor::compare_nodes(answers);
}

}  // namespace

TEST_CASE("the way of keeping the store follows from the setting and the file system") {
  SiteConfig config;
  config.store_path = "/store";
  CHECK(doctor::store_mode(config, kXfs) == StoreMode::node);
  CHECK(doctor::store_mode(config, kNfs) == StoreMode::shared);
  const Check shared = doctor::check_store_mode(config, kNfs);
  CHECK(shared.state == State::ok);
  CHECK_THAT(shared.found, StartsWith("shared: /store on nfs4 (server:/export)"));
  config.distribute = Distribute::sbcast;
  CHECK(doctor::store_mode(config, kXfs) == StoreMode::sbcast);
  CHECK(doctor::check_store_mode(config, kXfs).state == State::ok);
  CHECK(doctor::check_store_mode(config, kNfs).state == State::warn);
  CHECK_THAT(doctor::check_store_mode(config, kNfs).fix, StartsWith("take distribute out"));
  config.distribute = Distribute::shared;
  CHECK(doctor::store_mode(config, kNfs) == StoreMode::shared);
  CHECK(doctor::check_store_mode(config, kNfs).state == State::ok);
  CHECK(doctor::store_mode(config, kXfs) == StoreMode::sbcast);
  CHECK(doctor::check_store_mode(config, kXfs).state == State::warn);
}

TEST_CASE("the mount that a path is on") {
  CHECK(mounted_from("/proc/self").type == "proc");
  CHECK(mounted_from("/dev/shm/no/such/directory").kind == FileSystemKind::memory);
}

TEST_CASE("what a file in the store comes to, and nothing of it stays") {
  const test::TempDir dir;
  SiteConfig config;
  config.store_path = dir.path();
  const auto trial = doctor::try_store(dir.path());
  REQUIRE(trial);
  CHECK(std::chrono::abs(trial->ahead) < std::chrono::seconds(1));
  CHECK(list_directory(dir.path())->empty());

  const Check access = check_store_access(config, trial, false);
  CHECK(access.state == State::ok);
  CHECK_THAT(check_store_access(config, trial, true).found, Contains("root has no rights (root_squash)"));
  // The store keeps its id, and has no other one.
  CHECK(access.facts == check_store_access(config, trial, false).facts);
  CHECK(*list_directory(dir.path()) == std::vector<std::string>{"id"});
  dir.write("id", "nonsense");
  CHECK(check_store_access(config, trial, false).state == State::warn);
  CHECK_THAT(check_store_access(config, trial, false).fix, StartsWith("rm "));

  const auto refused = doctor::try_store(dir / "nowhere");
  CHECK_FALSE(refused);
  CHECK(check_store_access(config, refused, false).state == State::fail);
  CHECK_THAT(check_store_access(config, refused, false).fix, Contains("one uid on all nodes"));
}

TEST_CASE("whose leases they are, and whether clocks agree") {
  CHECK(doctor::check_store_leases({"nfs4", "", FileSystemKind::network}, 0).state == State::ok);
  CHECK_THAT(doctor::check_store_leases({"fuse", "", FileSystemKind::network}, 0).found,
             Contains("of this node alone"));
  CHECK_THAT(doctor::check_store_leases({"nfs", "", FileSystemKind::network}, EINVAL).found,
             Contains("never removed by themselves"));
  CHECK(doctor::check_store_leases({"nfs", "", FileSystemKind::network}, EINVAL).state == State::info);
  using std::chrono::milliseconds;
  CHECK(doctor::check_store_clock(milliseconds(4900)).state == State::ok);
  CHECK(doctor::check_store_clock(milliseconds(-4900)).state == State::ok);
  CHECK(doctor::check_store_clock(milliseconds(12340)).state == State::warn);
  CHECK(doctor::check_store_clock(milliseconds(12340)).found == "this node's clock is 12.3 s behind the file server's");
  CHECK(doctor::check_store_clock(milliseconds(-6000)).found ==
        "this node's clock is 6.0 s ahead of the file server's");
}

TEST_CASE("sbcast needs its programs, and an address that slurmd listens at") {
  const Programs programs;
  doctor::SlurmFiles files;
  for (const char* name : {"sbcast", "munge", "unmunge"}) programs.write(name, "");
  CHECK(check_sbcast(files, programs.environment).state == State::ok);
  files.one_address = true;
  CHECK(check_sbcast(files, programs.environment).state == State::ok);
  files.bcast_addresses = true;
  CHECK(check_sbcast(files, programs.environment).state == State::fail);
  CHECK_THAT(check_sbcast(files, programs.environment).fix, Contains("NoInAddrAny"));
}

TEST_CASE("a job's comment is written by Slurm's programs and one of ours") {
  const Programs programs;
  doctor::Places places;
  places.libexec = programs.dir / "bin";
  SiteConfig config;
  config.job_comment = JobComment::admin_comment;
  for (const char* name : {"squeue", "scontrol"}) programs.write(name, "");
  const Check none = check_job_comment(places, config, programs.environment);
  CHECK(none.state == State::warn);
  CHECK_THAT(none.found, Contains("missing: ") && Contains("/situla-recorder"));
  programs.write("situla-recorder", "");
  CHECK(check_job_comment(places, config, programs.environment).state == State::ok);
}

TEST_CASE("slurm.conf says where sbcast goes") {
  const test::TempDir dir;
  doctor::Places places;
  places.slurm_conf =
      dir.write("slurm.conf", "CommunicationParameters=noinaddrany,EnableIPv6\nNodeName=n1 BcastAddr=e1\n");
  CHECK(doctor::SlurmFiles::find(places, {}).one_address);
  CHECK(doctor::SlurmFiles::find(places, {}).bcast_addresses);
  dir.write("slurm.conf", "CommunicationParameters=EnableIPv6\nNodeName=n1 NodeAddr=e1 # BcastAddr=e1\n");
  CHECK_FALSE(doctor::SlurmFiles::find(places, {}).one_address);
  CHECK_FALSE(doctor::SlurmFiles::find(places, {}).bcast_addresses);
}

TEST_CASE("munge gives back who encoded") {
  const Programs programs;
  const auto munge = [&] { return doctor::check_munge("situla", programs.environment); };
  programs.write("munge", "echo MUNGE:credential:");
  programs.write("unmunge", "read -r credential; [ \"$credential\" = MUNGE:credential: ] || exit 1; echo \"UID: me (" +
                                std::to_string(geteuid()) + ")\"");
  CHECK(munge().state == State::ok);
  programs.write("unmunge", "echo 'UID:   other (4711)'");
  CHECK(munge().state == State::fail);
  CHECK_THAT(munge().found, Contains("decoded as uid 4711"));
  programs.write("unmunge", "echo 'unmunge: Error: Invalid credential' >&2; exit 8");
  CHECK_THAT(munge().found, Contains("Invalid credential"));
  programs.write("munge", "echo 'munge: Error: Failed to access \"/run/munge/munge.socket.2\"' >&2; exit 1");
  CHECK(munge().state == State::fail);
  CHECK_THAT(munge().found, Contains("Failed to access"));
  CHECK_THAT(munge().fix, Contains("systemctl start munge"));
}

TEST_CASE("where sbcast puts images is not in memory") {
  const Check memory = doctor::check_incoming("/dev/shm/situla-incoming");
  CHECK(memory.state == State::warn);
  CHECK_THAT(memory.found, Contains("takes memory of the node"));
  if (mounted_from("/usr").kind != FileSystemKind::memory)
    CHECK(doctor::check_incoming("/usr/situla-incoming").state != State::warn);
}

TEST_CASE("copies of a shared store's images need a disk of the node, and the service user's directory there") {
  const test::TempDir dir;
  SiteConfig config;
  config.local_tier = dir.path();
  const MountedFrom place = mounted_from(dir.path());
  const auto check = [&](uid_t owner = geteuid()) { return doctor::check_local_tier(config, owner, place, false); };
  CHECK_THAT(check().found, StartsWith(dir.path() + ", "));
  CHECK_THAT(check().found, Contains(" free"));
  config.local_tier = dir / "made/later";
  CHECK_THAT(check().found, StartsWith(dir / "made/later (made when it is needed), "));
  CHECK(check(geteuid() + 1).state == State::warn);
  CHECK_THAT(check(geteuid() + 1).found, Contains("made/later does not exist: no copies are made"));
  CHECK_THAT(check(geteuid() + 1).fix, StartsWith("install -d -m 0700 -o situla -g situla "));
  config.local_tier = dir.path();
  CHECK_THAT(check(geteuid() + 1).found, Contains(" does not belong to situla"));
  CHECK(doctor::check_local_tier(config, geteuid(), kNfs, false).state == State::warn);
  CHECK_THAT(doctor::check_local_tier(config, geteuid(), kNfs, false).found, Contains("is on nfs4"));
  CHECK(doctor::check_local_tier(config, geteuid(), place, true).state == State::warn);
  CHECK_THAT(doctor::check_local_tier(config, geteuid(), place, true).found,
             Contains("is on the file system of the store"));
}

TEST_CASE("nodes that keep their stores alike are one line") {
  const auto checks = compared({{"node1"}, {"node2"}, {"node3"}});
  REQUIRE(checks.size() == 1);
  CHECK(checks[0].state == State::ok);
  CHECK(checks[0].found == "shared (/store) on node[1-3]");
  // Stores of nodes' own have no ids, and it does not matter who owns them.
  CHECK(compared({{"node1", "node", "/s", "", "998"}, {"node2", "node", "/s", "", "997"}}).size() == 1);
}

TEST_CASE("what differs between nodes has a line and a fix each") {
  const auto only = [](const std::vector<Answering>& nodes, const std::string& name) {
    const auto checks = compared(nodes);
    for (const Check& check : checks) {
      INFO(check.name << ": " << check.found);
      CHECK((check.state == State::ok) == check.fix.empty());
      CHECK((check.name == name || check.state == State::ok));
    }
    const auto found =
        std::find_if(checks.begin(), checks.end(), [&](const Check& check) { return check.name == name; });
    REQUIRE(found != checks.end());
    return *found;
  };
  const Answering one{"node1"}, two{"node2"};
  Answering other{"node3"};
  other.mode = "node";
  CHECK(only({one, two, other}, "store-mode").found == "shared (/store) on node[1-2], node (/store) on node3");
  CHECK(only({one, two, other}, "store-mode").state == State::warn);
  other = {"node3"};
  other.path = "/other";
  CHECK(only({one, two, other}, "store-mode").state == State::warn);
  other = {"node3"};
  other.id = "bb";
  CHECK(only({one, two, other}, "store").found == "node3: /store is another store than that of node[1-2]");
  other = {"node3"};
  other.uid = "4711";
  CHECK(only({one, two, other}, "service-user").state == State::fail);
  CHECK_THAT(only({one, two, other}, "service-user").found, StartsWith("uid 998 on node[1-2], uid 4711 on node3"));
  other = {"node3"};
  other.version = "0.9";
  CHECK(only({one, two, other}, "versions").found == "situla 1.0 on node[1-2], 0.9 on node3");
  other = {"node3"};
  other.ahead = 60;
  CHECK_THAT(only({one, two, other}, "clocks").found,
             StartsWith("by the clock of node") && Contains("node3 is at least 5") && Contains(" s ahead"));
  other.ahead = -60;
  CHECK_THAT(only({one, two, other}, "clocks").found, Contains("node3 is at least 5") && Contains(" s behind"));
  other.ahead = 5;
  CHECK(compared({one, two, other}).size() == 1);
}

TEST_CASE("what is between nodes is in the report of all, and counts") {
  Answering other{"node2"};
  other.uid = "4711";
  const doctor::ClusterReport report{{Answering{"node1"}.answer(), other.answer()}};
  CHECK(report.failed());
  CHECK_THAT(report.text(), Contains("\nbetween nodes\n  ok    store-mode    shared (/store) on node[1-2]\n") &&
                                Contains("\n  fail  service-user  uid 998 on node1, uid 4711 on node2") &&
                                !Contains("nothing to fix"));
  const auto json = nlohmann::json::parse(report.json());
  REQUIRE(json["checks"].size() == 2);
  CHECK(json["checks"][1]["section"] == "cluster");
  CHECK(json["checks"][1]["status"] == "fail");
}

TEST_CASE(
    "without the calls that mount by descriptor the kernel mounts no images, whatever else it could do for that") {
  set_mount_api(MountApi::classic);
  const ScopeExit back([] { set_mount_api(MountApi::automatic); });
  CHECK(doctor::check_mount_api().state == State::warn);
  const Check idmapped = doctor::check_idmapped_mounts();
  for (const Check& check : {doctor::check_compressors(), idmapped, doctor::check_image_owner({}, idmapped)}) {
    CAPTURE(check.name);
    CHECK(check.state == State::info);
    CHECK(check.found == (geteuid() == 0 ? "not tried: see the line mount-api" : "not tried: needs root"));
  }
}
