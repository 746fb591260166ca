// What of a step is told to the log, and what is left for its user?
#include "plugin/broker/report/step_report.hpp"

#include <ctime>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "plugin/broker/report/record_file.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

constexpr uid_t kReporter = 60801;

StepRequest request() {
  StepRequest step;
  step.job_id = 12;
  step.uid = kReporter;
  step.image = "registry.test/tiny";
  return step;
}

void set_age(const std::string& path, time_t seconds) {
  const time_t then = std::time(nullptr) - seconds;
  const timespec times[2] = {{then, 0}, {then, 0}};
  REQUIRE(utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
}

bool exists(const std::string& path) {
  return access(path.c_str(), F_OK) == 0;
}

/// One is left; false: this file system has no access lists.
bool can_keep(const test::TempDir& dir) {
  RecordFile first(dir.path(), kReporter, "1.0");
  const auto written = first.write("one\n");
  if (!written) CHECK(written.error().kind() == ErrorKind::unsupported);
  return written.has_value();
}

}  // namespace

TEST_CASE("the log has the phases it always had: a wait is part of the import, and each name stands there once") {
  StepReport report(request());
  CHECK(report.text().empty());
  CHECK(report.json().empty());
  report.begin(StepPhase::prepare);
  report.begin(StepPhase::import);
  report.heard(ImportWaits{"the import of job 7.0"});
  report.heard(ImportBegins{});
  report.heard(ImportProgress{1, 2});
  report.begin(StepPhase::mount);
  report.begin(StepPhase::prepare);
  report.begin(StepPhase::tasks);
  report.source = "store";
  report.root = "kernel";
  const std::string text = report.text();
  CHECK(text.starts_with("source=store mount=kernel prepare="));
  CHECK(text.find(" import=") != text.npos);
  for (const char* once : {"prepare=", "import=", "mount="}) CHECK(text.find(once) == text.rfind(once));
  for (const char* never : {"wait", "tasks", "save"}) CHECK(text.find(never) == text.npos);
  const std::string json = report.json();
  CHECK(json.starts_with(
      R"({"job":12,"step":0,"uid":60801,"image":"registry.test/tiny","named":false,"source":"store",)"));
  CHECK(json.find(R"("mount":"kernel","prepare_ms":)") != json.npos);
}

TEST_CASE("of making a container a part is the hooks', another the scripts', and all of it no more than it took") {
  const StepRecord::Phase whole{StepPhase::prepare, 1000, 100};
  const auto lengths = [&](uint64_t hooks, uint64_t scripts) {
    std::string text;
    uint64_t at = whole.begin;
    for (const StepRecord::Phase& part : parts_of_prepare(whole, hooks, scripts)) {
      CHECK(part.begin == at);
      at += part.length.value();
      text += std::string(to_string(part.phase)) + "=" + std::to_string(*part.length) + " ";
    }
    CHECK(at == 1100);
    return text;
  };
  CHECK(lengths(30, 20) == "prepare=50 hooks=30 scripts=20 ");
  CHECK(lengths(0, 0) == "prepare=100 ");
  CHECK(lengths(UINT32_MAX, 20) == "prepare=0 hooks=80 scripts=20 ");
  CHECK(lengths(5, UINT64_MAX) == "prepare=0 scripts=100 ");
}

TEST_CASE("a record is its user's to read, written in one moment, and locked while its writer lives") {
  const test::TempDir dir;
  if (!can_keep(dir)) SITULA_SKIP("no access lists in " + dir.path());
  const std::string path = dir / "60801/1.0";
  {
    RecordFile file(dir.path(), kReporter, "1.0");
    CHECK_FALSE(file.written());
    REQUIRE(file.write("one\n"));
    REQUIRE(file.write("two\n"));
    CHECK(file.written());
    CHECK(read_file(path).value() == "two\n");
    auto reader = open_file(path, O_RDONLY);
    REQUIRE(reader);
    CHECK_FALSE(FileLock::acquire(std::move(*reader), FileLock::Kind::shared, std::chrono::milliseconds(0), path));
  }
  auto reader = open_file(path, O_RDONLY);
  REQUIRE(reader);
  CHECK(FileLock::acquire(std::move(*reader), FileLock::Kind::shared, std::chrono::milliseconds(0), path));
  struct stat status {};
  REQUIRE(stat(path.c_str(), &status) == 0);
  // The group's right is the list's mask.
  CHECK((status.st_mode & 07777U) == 0440U);
  CHECK(status.st_uid == geteuid());
  REQUIRE(stat((dir / "60801").c_str(), &status) == 0);
  CHECK((status.st_mode & 07777U) == 0755U);
  CHECK(list_directory(dir / "60801").value() == std::vector<std::string>{"1.0"});
}

TEST_CASE("of a user the latest records stay") {
  const test::TempDir dir;
  if (!can_keep(dir)) SITULA_SKIP("no access lists in " + dir.path());
  for (int i = 1; i <= 70; ++i) {
    const std::string path = dir / ("60801/2." + std::to_string(i));
    REQUIRE(write_file_atomically(path, "old\n", 0400));
    set_age(path, 1000 - i);
  }
  RecordFile file(dir.path(), kReporter, "3.0");
  REQUIRE(file.write("new\n"));
  CHECK(list_directory(dir / "60801").value().size() == RecordFile::kMostOfUser);
  CHECK(exists(dir / "60801/3.0"));
  CHECK(exists(dir / "60801/2.70"));
  CHECK_FALSE(exists(dir / "60801/2.1"));
}

TEST_CASE("what is a day old goes, of all users, but not what is still written") {
  const test::TempDir dir;
  if (!can_keep(dir)) SITULA_SKIP("no access lists in " + dir.path());
  RecordFile of_other(dir.path(), kReporter + 1, "5.0");
  REQUIRE(of_other.write("long\n"));
  REQUIRE(write_file_atomically(dir / "60802/4.0", "old\n", 0400));
  REQUIRE(write_file_atomically(dir / "60802/6.0", "young\n", 0400));
  set_age(dir / "60802/4.0", RecordFile::kLongest + 5);
  set_age(dir / "60802/5.0", RecordFile::kLongest + 5);
  remove_old_records(dir.path());
  CHECK_FALSE(exists(dir / "60802/4.0"));
  CHECK(exists(dir / "60802/5.0"));
  CHECK(exists(dir / "60802/6.0"));
  CHECK(exists(dir / "60801/1.0"));
  remove_old_records(dir / "none");
}
