// For whom and for how long does an answer of the registry count, where srun asks for several nodes?
#include "hooks/sources/job_answers.hpp"

#include <ctime>
#include <filesystem>

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

constexpr uint64_t kNow = 2'000'000'000;
const Digest kOne = *Digest::parse("sha256:" + std::string(64, '1'));
const Digest kTwo = *Digest::parse("sha256:" + std::string(64, '2'));

struct Cache {
  test::TempDir directory;

  [[nodiscard]] JobAnswers of(const std::string& job, const std::string& image, const std::string& rule = "job") const {
    auto answers = JobAnswers::open(directory.path(), {job, "c"}, image, *ResolveRule::parse(rule));
    REQUIRE(answers);
    return std::move(*answers);
  }
  [[nodiscard]] bool has(const JobAnswers& answers, uint64_t now = kNow) const { return answers.find(now).has_value(); }
};

}  // namespace

TEST_CASE("an answer counts for the steps of its job, and for that name") {
  const Cache cache;
  const JobAnswers answers = cache.of("7", "registry.test/tiny:1");
  CHECK_FALSE(cache.has(answers));
  REQUIRE(answers.keep({kOne, kNow, kNow + 1, kTwo, true}));
  const auto found = cache.of("7", "registry.test/tiny:1").find(kNow + 60);
  REQUIRE(found);
  CHECK((found->digest == kOne && found->asked == kNow && found->looked == kNow + 1 && found->moved == kTwo &&
         found->told));
  CHECK_FALSE(cache.has(cache.of("8", "registry.test/tiny:1")));
  CHECK_FALSE(cache.has(cache.of("7", "registry.test/tiny:2")));
  CHECK_FALSE(cache.has(cache.of("7", "registry.test/tiny:1", "always")));
  CHECK_FALSE(cache.has(cache.of("7", "registry.test/tiny:1", "100")));  // another rule has answers of its own
  CHECK_FALSE(JobAnswers::open(cache.directory.path(), {"7", "other"}, "registry.test/tiny:1", {})->find(kNow));
  CHECK_FALSE(cache.has(answers, kNow - 1));
  CHECK_FALSE(cache.has(answers, kNow + 8 * 86400));
}

TEST_CASE("where time alone counts an answer is any job's, until it is too old") {
  const Cache cache;
  REQUIRE(cache.of("7", "tiny", "100").keep({kOne, kNow, kNow, std::nullopt, false}));
  CHECK(cache.has(cache.of("8", "tiny", "100"), kNow + 99));
  CHECK_FALSE(cache.has(cache.of("8", "tiny", "100"), kNow + 100));
  CHECK_FALSE(cache.has(cache.of("8", "tiny", "50"), kNow + 50));
}

TEST_CASE("answers are the user's own, and go after a week") {
  const Cache cache;
  REQUIRE(cache.of("7", "tiny").keep({kOne, kNow, 0, std::nullopt, false}));
  const std::string directory = cache.directory / "situla-jobs";
  struct stat info {};
  REQUIRE(stat(directory.c_str(), &info) == 0);
  CHECK((info.st_mode & 07777U) == 0700U);
  REQUIRE(cache.of("8", "tiny")
              .keep({kTwo, kNow, static_cast<uint64_t>(std::time(nullptr)) + 8 * 86400, std::nullopt, false}));
  CHECK(std::distance(std::filesystem::directory_iterator(directory), std::filesystem::directory_iterator()) == 1);
  CHECK(cache.has(cache.of("8", "tiny")));
  (void)cache.directory.write("situla-jobs/nonsense", "x");
  for (const auto& file : std::filesystem::directory_iterator(directory)) {
    REQUIRE(truncate(file.path().c_str(), 5) == 0);
  }
  CHECK_FALSE(cache.has(cache.of("8", "tiny")));
}

TEST_CASE("of two first answers one counts") {
  const Cache cache;
  const JobAnswers answers = cache.of("7", "tiny");
  const JobAnswer one{kOne, kNow, kNow, std::nullopt, false};
  const JobAnswer two{kTwo, kNow, kNow, std::nullopt, false};
  CHECK(answers.keep_first(one).digest == kOne);
  CHECK(answers.keep_first(two).digest == kOne);
  CHECK(answers.find(kNow)->digest == kOne);
  // Where every step asks, each has its own.
  CHECK(cache.of("7", "tiny", "always").keep_first(two).digest == kTwo);
}
