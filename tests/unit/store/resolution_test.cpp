// When is a registry asked, for whom, and what does its answer change?
#include "hooks/store/resolution.hpp"

#include <filesystem>

#include <sys/stat.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

const Digest kIndex = *Digest::parse_hex(std::string(64, 'a'));
const Digest kManifest = *Digest::parse_hex(std::string(64, 'b'));
const Digest kNewIndex = *Digest::parse_hex(std::string(64, 'c'));
const Digest kNewManifest = *Digest::parse_hex(std::string(64, 'd'));
const Digest kOther = *Digest::parse_hex(std::string(64, 'e'));
constexpr uint64_t kAnswered = 2'000'000'000;

ImageQuestion question(uid_t uid = 1000, const std::string& name = "12") {
  return {uid, {"registry.test", "debian"}, name, "linux/amd64/"};
}

Resolution::Settings settings(const char* rule = "job") {
  return {*ResolveRule::parse(rule), std::chrono::seconds(3600), std::chrono::seconds(86400)};
}

}  // namespace

TEST_CASE("a tag means one manifest for all steps of a job, as long as the leave counts") {
  const test::TempDir store;
  Resolution first(store.path(), question(), "7.0", settings(), kAnswered);
  CHECK_FALSE(first.granted());
  CHECK_FALSE(first.pinned());
  CHECK(first.answered(kIndex, kManifest) == kManifest);

  CHECK(Resolution(store.path(), question(), "7.1", settings(), kAnswered + 3599).granted() == kManifest);
  const Resolution late(store.path(), question(), "7.1", settings(), kAnswered + 3600);
  CHECK_FALSE(late.granted());
  REQUIRE(late.pinned());
  CHECK(late.pinned()->manifest == kManifest);

  const Resolution other_job(store.path(), question(), "8.0", settings(), kAnswered + 1);
  CHECK_FALSE(other_job.granted());
  CHECK_FALSE(other_job.pinned());
  REQUIRE(other_job.last());
  CHECK(other_job.last()->named == kIndex);

  for (const ImageQuestion& other : {question(1001), question(1000, "13")})
    CHECK_FALSE(Resolution(store.path(), other, "7.1", settings(), kAnswered + 1).granted());
  ImageQuestion elsewhere = question();
  elsewhere.origin.registry = "registry.test without proof";
  CHECK_FALSE(Resolution(store.path(), elsewhere, "7.1", settings(), kAnswered + 1).granted());
  ImageQuestion other_login = question();
  other_login.login = "bob";
  CHECK_FALSE(Resolution(store.path(), other_login, "7.1", settings(), kAnswered + 1).granted());
  // A clock that was set back.
  CHECK_FALSE(Resolution(store.path(), question(), "7.1", settings(), kAnswered - 1).granted());
}

TEST_CASE("the first answer of a job counts, whoever of its steps got it") {
  const test::TempDir store;
  Resolution one(store.path(), question(), "7.0", settings(), kAnswered);
  Resolution two(store.path(), question(), "7.1", settings(), kAnswered);
  CHECK(one.answered(kIndex, kManifest) == kManifest);
  CHECK(two.answered(kNewIndex, kNewManifest) == kManifest);
}

TEST_CASE("always asks, and a number of seconds holds for all jobs of a user") {
  const test::TempDir store;
  Resolution first(store.path(), question(), "7.0", settings("600"), kAnswered);
  CHECK(first.answered(kIndex, kManifest) == kManifest);
  CHECK(Resolution(store.path(), question(), "8.0", settings("600"), kAnswered + 599).granted() == kManifest);
  CHECK_FALSE(Resolution(store.path(), question(), "8.0", settings("600"), kAnswered + 600).granted());
  CHECK_FALSE(Resolution(store.path(), question(), "7.1", settings("always"), kAnswered + 1).granted());
}

TEST_CASE("a name that is a digest needs a grant, and nothing else") {
  const test::TempDir store;
  Resolution by_tag(store.path(), question(), "7.0", settings(), kAnswered);
  by_tag.answered(kIndex, kManifest);
  for (const Digest& digest : {kIndex, kManifest})
    for (const char* rule : {"job", "always", "60"}) {
      const Resolution by_digest(store.path(), question(1000, digest.text()), "8.0", settings(rule), kAnswered + 3000);
      CHECK(by_digest.granted() == kManifest);
    }
  CHECK_FALSE(Resolution(store.path(), question(1001, kIndex.text()), "8.0", settings(), kAnswered + 1).granted());
}

TEST_CASE("without an answer, what was granted within grant_offline is started, for all steps of the job") {
  const test::TempDir store;
  Resolution(store.path(), question(), "7.0", settings(), kAnswered).answered(kIndex, kManifest);
  Resolution later(store.path(), question(), "8.0", settings(), kAnswered + 80000);
  CHECK_FALSE(later.is_silent());
  REQUIRE(later.offline());
  CHECK(later.offline()->manifest == kManifest);
  CHECK(later.offline()->time == kAnswered);
  later.unanswered();
  CHECK_FALSE(later.pinned());  // nothing was started
  later.started_offline(*later.offline());
  REQUIRE(later.pinned());
  CHECK(later.pinned()->manifest == kManifest);
  CHECK(Resolution(store.path(), question(), "9.0", settings(), kAnswered + 80059).is_silent());
  CHECK_FALSE(Resolution(store.path(), question(), "9.0", settings(), kAnswered + 80060).is_silent());
  CHECK(Resolution(store.path(), question(), "9.0", settings(), kAnswered + 80020).when_asked() ==
        " (asked 20 s ago, and again in 40 s)");
  CHECK_FALSE(Resolution(store.path(), question(1001), "9.0", settings(), kAnswered + 80001).is_silent());
  // When it answers again, the job goes on with what it has.
  Resolution again(store.path(), question(), "8.1", settings(), kAnswered + 80100);
  CHECK(again.answered(kManifest, kManifest) == kManifest);
  CHECK_FALSE(Resolution(store.path(), question(), "9.0", settings(), kAnswered + 86400).offline());
  CHECK_FALSE(Resolution(store.path(), question(1001), "9.0", settings(), kAnswered + 1).offline());
}

TEST_CASE("a refusal takes back what was granted") {
  const test::TempDir store;
  const auto refused = [&](const char* job, ErrorKind why) {
    std::filesystem::remove_all(store / "grants");
    Resolution(store.path(), question(), "7.0", settings(), kAnswered).answered(kIndex, kManifest);
    Resolution(store.path(), question(), job, settings(), kAnswered + 1).refused(why, false);
    return std::pair(Resolution(store.path(), question(), "7.2", settings(), kAnswered + 2).granted().has_value(),
                     Resolution(store.path(), question(), "9.0", settings(), kAnswered + 2).offline().has_value());
  };
  CHECK(refused("7.1", ErrorKind::denied) == std::pair(false, false));
  CHECK(refused("8.0", ErrorKind::denied) == std::pair(false, false));
  // A tag that is gone: who has the image, has it.
  CHECK(refused("8.0", ErrorKind::not_found) == std::pair(true, false));
  CHECK(refused("8.0", ErrorKind::corrupt) == std::pair(true, true));
}

TEST_CASE(
    "a job whose leave has lapsed asks by the name: it goes on with what it has, and hears that the tag has moved") {
  const test::TempDir store;
  Resolution(store.path(), question(), "7.0", settings(), kAnswered).answered(kIndex, kManifest);
  Resolution later(store.path(), question(), "7.1", settings(), kAnswered + 7200);
  CHECK_FALSE(later.granted());
  CHECK(later.answered(kNewIndex, kNewManifest) == kManifest);
  CHECK(later.moved_to() == kNewManifest);
  CHECK(Resolution(store.path(), question(), "7.2", settings(), kAnswered + 7201).granted() == kManifest);
  // What is gone at the registry is no leave; what is gone by its digest takes none of the name.
  Resolution(store.path(), question(), "7.3", settings(), kAnswered + 7202).refused(ErrorKind::not_found, true);
  CHECK_FALSE(Resolution(store.path(), question(), "7.4", settings(), kAnswered + 7203).granted());
  CHECK(Resolution(store.path(), question(), "8.0", settings(), kAnswered + 7203).last());
}

TEST_CASE("what a node with a clock ahead has heard counts from now on") {
  const test::TempDir store;
  Resolution first(store.path(), question(), "7.0", settings(), kAnswered);
  REQUIRE(first.is_recent(kAnswered + 200));
  CHECK(first.heard(kIndex, kManifest, kAnswered + 200) == kManifest);
  Resolution second(store.path(), question(), "7.1", settings(), kAnswered + 1);
  CHECK(second.granted() == kManifest);
  CHECK(second.heard(kNewIndex, kNewManifest, kAnswered) == kManifest);
}

TEST_CASE("what several nodes asked for by a digest beside the tag is what they start when nobody answers") {
  const test::TempDir store;
  ImageQuestion on_nodes = question(1000, kIndex.text());
  on_nodes.tag = "12";
  Resolution(store.path(), on_nodes, "7.0", settings(), kAnswered).answered(kIndex, kManifest);
  const Resolution alone(store.path(), question(), "8.0", settings("600"), kAnswered + 5);
  CHECK_FALSE(alone.granted());  // the registry has not said that of the tag
  REQUIRE(alone.offline());
  CHECK(alone.offline()->manifest == kManifest);
  CHECK_FALSE(Resolution(store.path(), question(1000, "13"), "8.0", settings(), kAnswered + 5).offline());
  CHECK_FALSE(Resolution(store.path(), question(1001), "8.0", settings(), kAnswered + 5).offline());
}

TEST_CASE("a tag that has moved is looked for once a minute, and said once") {
  const test::TempDir store;
  Resolution(store.path(), question(), "7.0", settings(), kAnswered).answered(kIndex, kManifest);
  CHECK_FALSE(Resolution(store.path(), question(), "7.1", settings(), kAnswered + 59).look_again());
  Resolution looking(store.path(), question(), "7.1", settings(), kAnswered + 60);
  CHECK(looking.look_again());
  CHECK_FALSE(Resolution(store.path(), question(), "7.2", settings(), kAnswered + 61).look_again());
  looking.looked_again(kIndex, kManifest);
  CHECK_FALSE(Resolution(store.path(), question(), "7.2", settings(), kAnswered + 62).moved_to());
  // The leave counts from that answer on.
  CHECK(Resolution(store.path(), question(), "7.2", settings(), kAnswered + 3659).granted() == kManifest);

  Resolution(store.path(), question(), "7.3", settings(), kAnswered + 200).looked_again(kNewIndex, kNewManifest);
  Resolution told(store.path(), question(), "7.4", settings(), kAnswered + 201);
  CHECK(told.granted() == kManifest);
  CHECK(told.moved_to() == kNewManifest);
  CHECK_FALSE(told.moved_to());
  Resolution(store.path(), question(), "7.5", settings(), kAnswered + 300).looked_again(kNewIndex, kNewManifest);
  CHECK_FALSE(Resolution(store.path(), question(), "7.6", settings(), kAnswered + 301).moved_to());
  // There and back again.
  Resolution(store.path(), question(), "7.6", settings(), kAnswered + 400).looked_again(kOther, kOther);
  Resolution(store.path(), question(), "7.7", settings(), kAnswered + 500).looked_again(kIndex, kManifest);
  CHECK_FALSE(Resolution(store.path(), question(), "7.8", settings(), kAnswered + 501).moved_to());
}

TEST_CASE("a grant that was planted, copied, damaged or linked is none") {
  const test::TempDir store;
  const std::string grants = store / "grants";
  Resolution(store.path(), question(), "7.0", settings(), kAnswered).answered(kIndex, kManifest);
  const auto granted = [&](uid_t uid, const std::string& name) {
    return Resolution(store.path(), question(uid, name), "9.0", settings("600"), kAnswered + 1).granted().has_value();
  };
  REQUIRE(granted(1000, "12"));
  // Of another user, and under the names of other questions.
  std::filesystem::copy(grants + "/1000", grants + "/1001");
  CHECK_FALSE(granted(1001, "12"));
  Resolution(store.path(), question(1000, "13"), "7.0", settings("always"), kAnswered)
      .answered(kNewIndex, kNewManifest);
  std::vector<std::filesystem::path> files;
  for (const auto& file : std::filesystem::directory_iterator(grants + "/1000")) files.push_back(file.path());
  REQUIRE(files.size() >= 6);
  // The bytes of each of them under all names: one question at most is answered by its own.
  std::vector<std::string> contents;
  for (const auto& file : files) contents.push_back(*read_file(file));
  for (const std::string& bytes : contents) {
    for (const auto& file : files) REQUIRE(write_file_atomically(file, bytes, 0600));
    CHECK_FALSE((granted(1000, "12") && granted(1000, "13")));
  }
  for (const auto& file : files) REQUIRE(write_file_atomically(file, "nonsense", 0600));
  CHECK_FALSE(granted(1000, "12"));

  std::filesystem::remove_all(grants);
  Resolution(store.path(), question(), "7.0", settings(), kAnswered).answered(kIndex, kManifest);
  for (const auto& file : std::filesystem::directory_iterator(grants + "/1000")) {
    struct stat status {};
    REQUIRE(stat(file.path().c_str(), &status) == 0);
    CHECK((status.st_mode & 07777U) == 0600U);
    std::filesystem::rename(file.path(), store / file.path().filename().string());
    std::filesystem::create_symlink(store / file.path().filename().string(), file.path());
  }
  CHECK_FALSE(granted(1000, "12"));
}

TEST_CASE("a user's grants do not grow without end") {
  const test::TempDir store;
  const Grants grants(store.path(), 1000);
  for (size_t i = 0; i < Grants::kMostFiles + 1000; ++i)
    REQUIRE(grants.put(question(1000, "tag" + std::to_string(i)), {kIndex, kManifest, kAnswered}));
  size_t count = 0;
  for (const auto& file : std::filesystem::directory_iterator(store / "grants/1000")) count += file.exists() ? 1 : 0;
  CHECK(count <= Grants::kMostFiles + 100);
  CHECK(count > Grants::kMostFiles / 2);
  CHECK(grants.find(question(1000, "tag" + std::to_string(Grants::kMostFiles + 999))));
}
