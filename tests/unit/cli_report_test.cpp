// Records of steps: what the broker writes is what is read, and nothing else; in words, and as a picture.
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/spec/step_name.hpp"
#include "common/sys/file.hpp"
#include "hooks/cli/report/record_text.hpp"
#include "hooks/cli/report/step_records.hpp"
#include "hooks/cli/report/timeline.hpp"
#include "tests/support/memory_log.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;
using Catch::Contains;

namespace {

constexpr uint64_t kBegin = 1'764'000'000'000;  // 2025-11-24 16:00:00 UTC

StepRecord whole_record() {
  StepRecord record;
  record.job = 12;
  record.uid = 1000;
  record.node = "node1";
  record.image = "registry.test/tiny";
  record.tasks = 4;
  record.digest = "sha256:" + std::string(64, 'a');
  record.source = "registry";
  record.mount = "kernel";
  record.bytes = 3 << 20U;
  record.phases = {{StepPhase::import, kBegin, 1204},
                   {StepPhase::mount, kBegin + 1204, 2},
                   {StepPhase::prepare, kBegin + 1206, 9},
                   {StepPhase::tasks, kBegin + 1215, 60'000}};
  record.ended = kBegin + 61'300;
  return record;
}

StepRecord importing() {
  StepRecord record = whole_record();
  record.step = 1;
  record.phases = {{StepPhase::import, kBegin, std::nullopt}};
  record.progress = StepRecord::Progress{120 << 20U, 480 << 20U, kBegin + 10'000};
  record.ended.reset();
  return record;
}

StepRecord failed() {
  StepRecord record = importing();
  record.step = kBatchStep;
  record.progress.reset();
  record.phases.back().length = 300;
  record.failure =
      StepRecord::Failure{"image-not-found", "registry.test/none: no such image\nat all", "try <another> & \"so\""};
  return record;
}

StepRecord parsed(const std::string& text) {
  auto record = report::parse_step_record(text);
  INFO((record ? "" : record.error().message()));
  REQUIRE(record);
  return std::move(*record);
}

std::string name_of_user(uid_t uid) {
  return uid == 1000 ? "alice" : std::to_string(uid);
}

}  // namespace

TEST_CASE("what is written of a step is read as the same") {
  for (const StepRecord& record : {whole_record(), importing(), failed(), StepRecord()}) {
    const std::string json = record.json();
    CHECK(json.find('\n') == std::string::npos);
    CHECK(parsed(json).json() == json);
  }
  StepRecord lost = importing();
  lost.lost = true;
  CHECK(parsed(lost.json()).lost);
  CHECK(parsed(failed().json()).failure->text == "registry.test/none: no such image\nat all");
  CHECK(parsed(importing().json()).progress->total == 480U << 20U);
}

TEST_CASE("a record is bounded, whatever it is made of, and its texts are whole characters") {
  StepRecord record = whole_record();
  record.image = std::string(100'000, '\x01');
  record.failure = StepRecord::Failure{"failed", std::string(100'000, '"'), ""};
  record.failure->hint = "x";
  for (int i = 0; i < 20'000; ++i) record.failure->hint += "\xc3\xa4";
  record.phases.resize(StepRecord::kMostPhases, {StepPhase::prepare, kBegin, 1});
  const std::string json = record.json();
  CHECK(json.size() <= StepRecord::kMostBytes);
  const StepRecord again = parsed(json);
  CHECK(again.failure->hint.size() % 2 == 1);
  CHECK(again.failure->hint.ends_with("\xc3\xa4"));
  CHECK(again.image.starts_with("\\x01\\x01"));
}

TEST_CASE("a record is refused that has anything else in it") {
  const std::string begin = R"({"record":1,"job":1,"step":0,"uid":5,"phases":[)";
  CHECK(report::parse_step_record(begin + "]}"));
  const auto refused = [&](const std::string& text, const std::string& why) {
    const auto record = report::parse_step_record(text);
    REQUIRE_FALSE(record);
    CHECK_THAT(record.error().message(), Contains(why));
  };
  refused("", "not JSON");
  refused("[]", "is no object");
  refused(R"({"record":2,"job":1,"step":0,"uid":5,"phases":[]})", "of another release");
  refused(R"({"record":1,"step":0,"uid":5,"phases":[]})", "it has no job");
  refused(begin + R"(],"more":1})", "unknown members");
  refused(begin + R"(],"job":-1})", "job is no such number");
  refused(begin + R"(],"job":4294967296})", "job is no such number");
  refused(begin + R"(],"image":7})", "image is no text");
  refused(begin + R"(],"image":"\u001b[2J"})", "control characters");
  refused(begin + R"(],"node":"a\nb"})", "control characters");
  refused(begin + R"(],"named":1})", "neither true nor false");
  refused(begin + R"(],"ended":100000000000001})", "ended is no such number");
  refused(begin + R"({"name":"dance","begin":1}]})", "another name");
  refused(begin + R"({"name":"import","begin":1},{"name":"tasks","begin":2}]})", "several phases go on");
  refused(begin + R"({"name":"import","begin":1,"ms":-2}]})", "ms is no such number");
  refused(begin + R"(],"progress":{"done":1,"total":2}})", "it has no at");
  refused(begin + R"(],"failure":{"code":"x","why":"y"}})", "unknown members");
  std::string many = begin;
  for (size_t i = 0; i <= StepRecord::kMostPhases; ++i) many += R"({"name":"prepare","begin":1,"ms":1},)";
  many.back() = ']';
  refused(many + "}", "phases are no such list");
}

TEST_CASE("records of several nodes are lines; of a step and a node the first stays, and time is their order") {
  StepRecord other = whole_record();
  other.node = "node2";
  other.phases.front().begin -= 5;
  StepRecord again = whole_record();
  again.image = "again";
  auto records = report::parse_step_records(whole_record().json() + "\n\n" + other.json() + "\n" + again.json() + "\n");
  REQUIRE(records);
  report::sort_records(*records);
  REQUIRE(records->size() == 2);
  CHECK(records->front().node == "node2");
  CHECK(records->back().image == "registry.test/tiny");
  const auto broken = report::parse_step_records(whole_record().json() + "\nslurm: hello\n");
  REQUIRE_FALSE(broken);
  CHECK_THAT(broken.error().message(), Catch::StartsWith("line 2: "));
}

TEST_CASE("records are found by their user; one that nobody writes any more is lost") {
  const test::TempDir dir;
  test::MemoryLog log;
  REQUIRE(make_directories(dir / "1000", 0755));
  REQUIRE(make_directories(dir / "1001", 0755));
  REQUIRE(write_file_atomically(dir / "1000/12.0", whole_record().json() + "\n", 0644));
  REQUIRE(write_file_atomically(dir / "1000/12.1", importing().json() + "\n", 0644));
  REQUIRE(write_file_atomically(dir / "1000/.12.2", "half", 0644));
  REQUIRE(write_file_atomically(dir / "1001/13.0", failed().json() + "\n", 0644));
  CHECK(report::read_step_records(dir.path(), 1001, log).size() == 1);
  const auto of_all = report::read_step_records(dir.path(), std::nullopt, log);
  CHECK(of_all.size() == 3);
  auto own = report::read_step_records(dir.path(), 1000, log);
  REQUIRE(own.size() == 2);
  CHECK(report::state_of(own[0]) == "ended");
  CHECK(report::state_of(own[1]) == "lost");
  // Whoever writes it has it locked.
  auto file = open_file(dir / "1000/12.1", O_RDWR);
  REQUIRE(file);
  const auto lock =
      FileLock::acquire(std::move(*file), FileLock::Kind::exclusive, std::chrono::milliseconds(0), "the record");
  REQUIRE(lock);
  own = report::read_step_records(dir.path(), 1000, log);
  CHECK(report::state_of(own[1]) == "importing");
  CHECK(log.text(LogLevel::warning).empty());
  REQUIRE(write_file_atomically(dir / "1000/12.3", "{}", 0644));
  CHECK(report::read_step_records(dir.path(), 1000, log).size() == 2);
  CHECK_THAT(log.text(LogLevel::warning), Contains("12.3: no record of a step"));
  CHECK(report::read_step_records(dir / "none", std::nullopt, log).empty());
}

TEST_CASE("a step in words: where its image came from, its phases, and what it failed of") {
  (void)setenv("TZ", "UTC", 1);
  tzset();
  const std::string text = report::describe(whole_record(), kBegin);
  CHECK(text ==
        "step 12.0 on node1: ended\n"
        "  image     registry.test/tiny\n"
        "  digest    sha256:" +
            std::string(64, 'a') +
            "\n"
            "  source    registry\n"
            "  mount     kernel\n"
            "  size      3.0 MiB\n"
            "  phase    begin                       time\n"
            "  import   2025-11-24 16:00:00.000  1.204 s\n"
            "  mount    2025-11-24 16:00:01.204     2 ms\n"
            "  prepare  2025-11-24 16:00:01.206     9 ms\n"
            "  tasks    2025-11-24 16:00:01.215     1:00\n");
  const std::string error = report::describe(failed(), kBegin);
  CHECK_THAT(error, Catch::StartsWith("step 12.batch on node1: failed [image-not-found]\n"));
  CHECK_THAT(error, Contains("  [ERROR] registry.test/none: no such image\n  at all [image-not-found]\n"
                             "  hint: try <another> & \"so\"\n"));
  const std::string going = report::describe(importing(), kBegin + 12'000);
  CHECK_THAT(going, Contains("  import    120.0 MiB of 480.0 MiB (25 %)\n"));
  CHECK_THAT(going, Contains("  import  2025-11-24 16:00:00.000  12.000 s  goes on\n"));
}

TEST_CASE("times are short and exact") {
  CHECK(report::seconds_text(0) == "0 ms");
  CHECK(report::seconds_text(999) == "999 ms");
  CHECK(report::seconds_text(1009) == "1.009 s");
  CHECK(report::seconds_text(61'999) == "1:01");
  CHECK(report::seconds_text(3'661'000) == "1:01:01");
}

TEST_CASE("what goes on is a table; running tasks and what has ended are not in it") {
  StepRecord waiting = importing();
  waiting.step = 2;
  waiting.phases.back().phase = StepPhase::wait;
  waiting.waits_for = "the import of job 12.1 on node1, which has 120.0 MiB";
  waiting.progress.reset();
  StepRecord running = whole_record();
  running.step = 3;
  running.ended.reset();
  running.phases.back().length.reset();
  StepRecord lost = importing();
  lost.lost = true;
  const std::string table = report::status_table({whole_record(), importing(), waiting, running, failed(), lost},
                                                 kBegin + 12'345, name_of_user);
  CHECK(table ==
        "STEP  USER   STATE      SINCE        RATE  IMAGE               PROGRESS\n"
        "12.1  alice  importing   0:12  12.0 MiB/s  registry.test/tiny  120.0 MiB of 480.0 MiB (25 %)\n"
        "12.2  alice  waiting     0:12              registry.test/tiny  for the import of job 12.1 on node1, which "
        "has "
        "120.0 MiB\n");
  CHECK(report::status_table({whole_record(), running, failed()}, kBegin, name_of_user).empty());
}

TEST_CASE("a picture has a row for each step, a bar for each phase, and an axis") {
  const std::string svg = report::draw_timeline({whole_record(), failed()}, "job 12: registry.test/tiny", kBegin);
  CHECK(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1000 152\""));
  CHECK(svg.ends_with("</svg>\n"));
  CHECK_THAT(svg, Contains("class=\"title\">job 12: registry.test/tiny</text>"));
  CHECK_THAT(svg, Contains(">12.0 node1</text>") && Contains(">12.batch node1</text>"));
  CHECK_THAT(svg, Contains("<title>import: 1.204 s, from 2025-11-24 16:00:00.000</title>"));
  CHECK_THAT(svg, Contains("<title>tasks: 1:00, from "));
  // From its begin to its end; the rest of the bar's width is what comes between the tasks' end and the step's.
  CHECK_THAT(svg, Contains("<rect x=\"216\" y=\"89\" width=\"13\" height=\"16\" fill=\"#0072b2\">"));
  CHECK_THAT(svg, Contains("class=\"total\">1:01</text>"));
  CHECK_THAT(svg, Contains("class=\"tick\">0 s</text>") && Contains("class=\"tick\">10 s</text>") &&
                      Contains("class=\"tick\">1:00</text>"));
  CHECK_THAT(svg, Contains("class=\"failed\">image-not-found</text>"));
  CHECK_THAT(svg, Contains("prefers-color-scheme: dark"));
  CHECK_THAT(svg, !Contains(">save</text>"));
}

TEST_CASE("no text of a record is markup of a picture, and no number makes it endless") {
  StepRecord record = failed();
  record.failure->text = "<script>&\"'\x1b\xef\xbf\xbf";
  record.node = "</text>";
  record.phases = {{StepPhase::import, 1, report::kMostTime}, {StepPhase::tasks, report::kMostTime, report::kMostTime}};
  const std::string svg = report::draw_timeline({record, StepRecord()}, "<a>", kBegin);
  CHECK_THAT(
      svg, Contains("&lt;script&gt;&amp;&quot;&#39;\\x1b?") && !Contains("<script>") && Contains(">&lt;a&gt;</text>"));
  CHECK_THAT(svg, Contains("12.batch &lt;/text&gt;"));
  CHECK(svg.size() < 10'000);
  const std::vector<StepRecord> many(report::kMostRows + 7, whole_record());
  CHECK_THAT(report::draw_timeline(many, "", kBegin), Contains(">7 more</text>"));
  CHECK(report::draw_timeline({}, "", kBegin).ends_with("</svg>\n"));
}
