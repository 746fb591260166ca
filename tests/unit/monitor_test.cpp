// What do a step's nodes come to, in one message and one bar?
#include <catch2/catch.hpp>

#include "common/protocol/step_monitor.hpp"
#include "hooks/monitor/failures.hpp"
#include "hooks/monitor/node_names.hpp"
#include "hooks/monitor/step_progress.hpp"

using namespace situla;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

const Clock::time_point kBegin{1000s};

SentError error(const std::string& text, const std::string& hint = "") {
  return {ErrorKind::not_found, text, hint, ErrorCode::image_not_found};
}

const std::string kFront = "srun: error: situla: ";
constexpr uint64_t kMebi = uint64_t{1} << 20U;

}  // namespace

TEST_CASE("names of nodes, as Slurm writes them") {
  CHECK(node_list({"node1"}) == "node1");
  CHECK(node_list({"node2", "node1", "node2", "node10", "node3"}) == "node[1-3,10]");
  CHECK(node_list({"n9", "n10", "n11"}) == "n[9-11]");
  CHECK(node_list({"gpu009", "gpu011", "gpu010", "login", "cpu01"}) == "cpu01,gpu[009-011],login");
  CHECK(node_list({"n08", "n09", "n10", "n11"}) == "n[08-11]");
  CHECK(node_list({"n1", "n01"}) == "n1,n01");
  CHECK(node_list({"r1n1", "r1n2", "r2n1"}) == "r1n[1-2],r2n1");
  CHECK(node_list({"12", "13"}) == "[12-13]");
  CHECK(node_list({"n12345678901234567890123", "a-ib"}) == "a-ib,n12345678901234567890123");
  CHECK(node_list({""}).empty());
}

TEST_CASE("what failed alike is one message, with the nodes and the hint") {
  Failures failures(4);
  CHECK_FALSE(failures.due());
  failures.add("node3", error("get x: not there", "look\nagain"), kBegin);
  failures.add("node1", error("get x: not there", "look\nagain"), kBegin + 10ms);
  CHECK(failures.due() == kBegin + 10ms + Failures::kQuiet);
  failures.add("node2", error("get y: not there"), kBegin + 20ms);
  CHECK(failures.take() == std::vector<std::string>{kFront + "node[1,3]: get x: not there [image-not-found]",
                                                    kFront + "hint: look", kFront + "hint: again",
                                                    kFront + "node2: get y: not there [image-not-found]"});
  CHECK_FALSE(failures.due());
  CHECK(failures.take().empty());
}

TEST_CASE("a node that fails alike later has a line, and no hint again") {
  Failures failures(3);
  failures.add("n1", error("a", "b"), kBegin);
  CHECK(failures.take().size() == 2);
  failures.add("n2", error("a", "b"), kBegin + 5s);
  CHECK(failures.take() == std::vector<std::string>{kFront + "n2: a [image-not-found]"});
}

TEST_CASE("what says the node's own name is alike") {
  Failures failures(3);
  failures.add("n1", error("the store of n1 is full"), kBegin);
  failures.add("n2", error("the store of n2 is full"), kBegin);
  failures.add("n3", error("the store of n1 is full"), kBegin);
  CHECK(failures.take() == std::vector<std::string>{kFront + "n[1-2]: the store of n1 is full [image-not-found]",
                                                    kFront + "n3: the store of n1 is full [image-not-found]"});
}

TEST_CASE("a line has the words of the nodes that it names") {
  Failures failures(4);
  failures.add("n1", error("the store of n1 is full"), kBegin);
  CHECK(failures.take().size() == 1);
  failures.add("n2", error("the store of n2 is full"), kBegin + 5s);
  CHECK(failures.take() == std::vector<std::string>{kFront + "n2: the store of n2 is full [image-not-found]"});
  failures.add("n3", error("the store of n3 is full"), kBegin + 9s);
  failures.add("n4", error("the store of n4 is full"), kBegin + 9s);
  failures.withdraw("n3", error("the store of n3 is full"));
  CHECK(failures.take() == std::vector<std::string>{kFront + "n4: the store of n4 is full [image-not-found]"});
}

TEST_CASE("all have failed: at once; else not long after the first") {
  Failures all(2);
  all.add("n1", error("a"), kBegin);
  all.add("n1", error("a"), kBegin);
  CHECK(all.due() == kBegin + Failures::kQuiet);
  all.add("n2", error("a"), kBegin);
  CHECK(all.due() == kBegin + Failures::kQuietOfAll);
  CHECK(all.take() == std::vector<std::string>{kFront + "n[1-2] (3 tasks): a [image-not-found]"});

  Failures many(1000);
  auto now = kBegin;
  for (int i = 0; i < 20; ++i) many.add("n" + std::to_string(i), error("a"), now += 500ms);
  CHECK(many.due() == kBegin + 500ms + Failures::kLongest);
}

TEST_CASE("nothing of a node's words moves the cursor, and they have an end") {
  Failures failures(1);
  failures.add("n\x1b[2J", error("a\x1b[31m\nb", "c\r"), kBegin);
  const auto lines = failures.take();
  REQUIRE_FALSE(lines.empty());
  for (const std::string& line : lines) CHECK(line.find_first_of("\x1b\r\n") == std::string::npos);
  size_t kept = 0;
  for (int i = 0; i < 1000; ++i) kept += failures.add("n", error(std::to_string(i)), kBegin) ? 1 : 0;
  CHECK(failures.take().size() == kept);
  CHECK(kept < 300);
}

TEST_CASE("what is withdrawn is not said") {
  Failures failures(2);
  failures.add("n1", error("a"), kBegin);
  failures.add("n2", error("a"), kBegin);
  failures.withdraw("n1", error("a"));
  failures.withdraw("n1", error("a"));
  failures.withdraw("n2", error("b"));
  CHECK(failures.take() == std::vector<std::string>{kFront + "n2: a [image-not-found]"});
  failures.withdraw("n2", error("a"));
  failures.add("n1", error("b"), kBegin);
  failures.withdraw("n1", error("b"));
  CHECK_FALSE(failures.due());
  CHECK(failures.take().empty());
}

TEST_CASE("the bar is of the slowest node") {
  StepProgress progress(3, "pytorch", {80, 24});
  CHECK(progress.heard("node1", ImportProgress{10 * kMebi, 100 * kMebi}, kBegin).empty());
  progress.heard("node2", ImportProgress{50 * kMebi, 100 * kMebi}, kBegin);
  // A node of which nothing is known may have the image, and its task may write.
  CHECK(progress.heard("node1", ImportProgress{11 * kMebi, 100 * kMebi}, kBegin + 1s).empty());
  progress.heard("node3", ImportProgress{50 * kMebi, 100 * kMebi}, kBegin + 1s);
  std::string drawn = progress.heard("node1", ImportProgress{20 * kMebi, 100 * kMebi}, kBegin + 2s);
  CHECK(drawn.find("importing pytorch on 3 nodes, the slowest node1") != std::string::npos);
  CHECK(drawn.find("20.0/100.0 MiB") != std::string::npos);
  // One that is about as far does not take its place.
  drawn = progress.heard("node1", ImportProgress{51 * kMebi, 100 * kMebi}, kBegin + 3s);
  CHECK(drawn.find("the slowest node1") != std::string::npos);
  drawn = progress.heard("node1", ImportProgress{90 * kMebi, 100 * kMebi}, kBegin + 4s);
  CHECK(drawn.find("the slowest node2") != std::string::npos);
  CHECK(drawn.find("50.0/100.0 MiB") != std::string::npos);
  drawn = progress.heard("node3", ImportWaits{"the import of job 7.0\x1b[2J"}, kBegin + 5s);
  CHECK(drawn.find("on 2 nodes, the slowest node2, 1 wait") != std::string::npos);
  CHECK(progress.pause(kBegin + 5s) == "\x1b[J");
  CHECK(progress.pause(kBegin + 5s).empty());
}

TEST_CASE("nothing is drawn when the first task begins; a line remains, and lines follow") {
  StepProgress progress(2, "pytorch", {80, 24});
  progress.heard("node1", ImportProgress{1 * kMebi, 100 * kMebi}, kBegin);
  progress.heard("node2", ImportProgress{1 * kMebi, 100 * kMebi}, kBegin);
  CHECK_FALSE(progress.heard("node1", ImportProgress{60 * kMebi, 100 * kMebi}, kBegin + 2s).empty());
  const std::string end = progress.over("node1", kBegin + 3s);
  CHECK(end.starts_with("\x1b[Jimporting pytorch on 2 nodes"));
  CHECK(end.ends_with("MiB\n"));
  CHECK(progress.heard("node2", ImportProgress{2 * kMebi, 100 * kMebi}, kBegin + 4s).empty());
  // As in a log: once in half a minute since the beginning, whoever else is ready meanwhile.
  const std::string line = progress.heard("node2", ImportProgress{4 * kMebi, 100 * kMebi}, kBegin + 31s);
  CHECK(line.starts_with("situla: importing pytorch on node2, 1 have it: 4.0 MiB of 100.0 MiB"));
  CHECK(line.ends_with("\n"));
  CHECK(progress.lost("node2", kBegin + 40s) ==
        "situla: importing pytorch on node2, 1 have it: 40.0 s, 4.0 MiB, 0.1 MiB/s\n");
}

TEST_CASE("a log has a line every half minute, and none of a short import") {
  StepProgress progress(4, "x", {});
  std::string said;
  for (int second = 0; second < 70; ++second) {
    const auto now = kBegin + std::chrono::seconds(second);
    said += progress.heard("n1", ImportWaits{"the import of job 7.0"}, now);
    said += progress.heard("n2", ImportWaits{"the import of job 7.0"}, now);
  }
  CHECK(said ==
        "situla: 2 of 4 nodes wait for x: the import of job 7.0\nsitula: 2 of 4 nodes wait for x: the import of job "
        "7.0\n");
  // Of a step of several parts nobody knows how many nodes it has.
  StepProgress of_parts(0, "images", {});
  CHECK(of_parts.heard("n1", ImportWaits{"the import of job 7.0"}, kBegin).empty());
  CHECK(of_parts.heard("n2", ImportWaits{"the import of job 7.0"}, kBegin + 31s) ==
        "situla: 2 nodes wait for images: the import of job 7.0\n");
}

TEST_CASE("a door goes through an environment; nothing else is one") {
  MonitorDoor door;
  door.port = 40001;
  door.of_monitor.fill(1);
  door.of_nodes.fill(0xff);
  const auto back = MonitorDoor::parse(door.text());
  REQUIRE(back);
  CHECK(back->port == 40001);
  CHECK(is_same(back->of_monitor, door.of_monitor));
  CHECK(is_same(back->of_nodes, door.of_nodes));
  CHECK_FALSE(is_same(back->of_nodes, door.of_monitor));
  for (const std::string& text : {std::string(), std::string("1"), std::string("1:"), "0" + door.text().substr(5),
                                  "70000" + door.text().substr(5), door.text() + "AAAA", door.text().substr(0, 20)})
    CHECK_FALSE(MonitorDoor::parse(text));
}

TEST_CASE("words go to the other end and back") {
  const auto back = [](const MonitorWord& word) { return decode_monitor_word(encode_monitor_word(word)); };
  CHECK(std::get<ImportProgress>(*back(ImportProgress{3, 4})).total == 4);
  CHECK(std::get<NodeHello>(*back(NodeHello{{}, "node1"})).node == "node1");
  CHECK(std::holds_alternative<Taken>(*back(Taken{})));
  // Four texts are cut so that they fit.
  const std::string longest = encode_monitor_word(error(std::string(100000, 'x'), std::string(100000, 'y')));
  CHECK(longest.size() <= kMostMonitorWord);
  CHECK(std::get<Failure>(*decode_monitor_word(longest)).text.size() == kMaxTextBytes);
  CHECK_FALSE(decode_monitor_word(encode_monitor_word(Taken{}) + "x"));
  CHECK_FALSE(decode_monitor_word(encode(Finish{})));
}
