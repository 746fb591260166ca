// Which options has each part of a heterogeneous srun?
#include "plugin/parts.hpp"

#include <cstdlib>
#include <map>

#include <catch2/catch.hpp>

#include "tests/unit/plugin/lookup.hpp"

using namespace situla;
using test::variables;

namespace {

using Variables = std::map<std::string, std::string>;

/// What Slurm calls srun's plugin with, part by part.
class Srun {
 public:
  explicit Srun(const Variables& environment = {}) { options_.inherit_sums(variables(environment)); }
  ~Srun() { unsetenv(kPartsVariable); }
  Srun(const Srun&) = delete;
  Srun& operator=(const Srun&) = delete;

  Result<void> part(const std::vector<std::pair<std::string, std::string>>& given) {
    for (const auto& [name, value] : given) {
      REQUIRE(find_option(name) != nullptr);
      TRY(options_.set(*find_option(name), value));
    }
    options_.take_from_parts_before();
    return hand_on_part(options_, parts_);
  }

  /// On the node of that part.
  [[nodiscard]] static std::optional<ContainerSpec> node(unsigned part) {
    const char* const parts = getenv(kPartsVariable);
    REQUIRE(parts != nullptr);
    ContainerOptions options;
    REQUIRE(use_own_part(options,
                         variables({{kPartsVariable, parts},
                                    {"SLURM_JOB_ID_HET_GROUP_0", "70"},
                                    {"SLURM_JOB_ID_PACK_GROUP_1", "71"},
                                    {"SLURM_JOB_ID_HET_GROUP_2", "72"}}),
                         70 + part));
    const auto spec = options.finish();
    REQUIRE(spec);
    return *spec;
  }

 private:
  ContainerOptions options_;
  std::vector<std::string> parts_;
};

}  // namespace

TEST_CASE("an srun that is no heterogeneous one leaves no word of parts") {
  Srun srun;
  setenv(kPartsVariable, "of an outer one", 1);
  REQUIRE(srun.part({{"container-image", "tiny"}}));
  CHECK(getenv(kPartsVariable) == nullptr);
}

TEST_CASE("a part has what it was given, and the rest from the part before") {
  Srun srun;
  REQUIRE(srun.part({{"container-image", "one"}, {"container-mounts", "/a:/a"}, {"container-mounts", "/b:/b"}}));
  REQUIRE(srun.part({{"container-mounts", "/c:/c"}, {"container-writable", ""}}));
  REQUIRE(srun.part({{"container-image", "three"}, {"container-readonly", ""}}));
  CHECK(Srun::node(0)->image == "one");
  CHECK(Srun::node(0)->mounts.size() == 2);
  CHECK(Srun::node(1)->image == "one");
  CHECK(Srun::node(1)->mounts.size() == 1);
  CHECK(Srun::node(2)->image == "three");
  CHECK(Srun::node(2)->mounts.front().target == "/c");
  CHECK(Srun::node(1)->writable != Srun::node(2)->writable);
}

TEST_CASE("parts that are alike need no numbers") {
  Srun srun;
  REQUIRE(srun.part({{"container-image", "one"}}));
  REQUIRE(srun.part({}));
  CHECK(Srun::node(0)->image == "one");
  CHECK(Srun::node(7)->image == "one");
}

TEST_CASE("--no-container is of its part alone") {
  Srun srun;
  REQUIRE(srun.part({{"container-image", "one"}}));
  REQUIRE(srun.part({{"no-container", ""}}));
  REQUIRE(srun.part({}));
  CHECK(Srun::node(0));
  CHECK_FALSE(Srun::node(1));
  CHECK(Srun::node(2)->image == "one");
}

TEST_CASE("what the job was given is no part's own") {
  // Slurm calls back the last use of the job's option for each part, before the part's.
  const Variables job = {{"_SLURM_SPANK_OPTION_situla_container_mounts", "/b:/b"},
                         {find_option("container-mounts")->sum, "/a:/a,/b:/b"},
                         {"_SLURM_SPANK_OPTION_situla_container_image", "job"}};
  Srun srun(job);
  REQUIRE(srun.part({{"container-mounts", "/b:/b"}, {"container-image", "job"}, {"container-mounts", "/c:/c"}}));
  REQUIRE(srun.part({{"container-mounts", "/b:/b"}, {"container-image", "job"}, {"container-workdir", "/w"}}));
  REQUIRE(srun.part({{"container-mounts", "/b:/b"}, {"container-image", "job"}, {"container-mounts", "/d:/d"}}));
  CHECK(Srun::node(0)->mounts.size() == 3);
  CHECK(Srun::node(1)->mounts.size() == 3);
  CHECK(Srun::node(1)->mounts.back().target == "/c");
  CHECK(Srun::node(2)->mounts.size() == 3);
  CHECK(Srun::node(2)->mounts.back().target == "/d");
  CHECK(Srun::node(2)->workdir == "/w");
}

TEST_CASE("what is too long, and what did not come from here") {
  Srun srun;
  REQUIRE(srun.part({{"container-image", "one"}}));
  const auto long_one =
      srun.part({{"container-image", "two"}, {"container-mounts", "/" + std::string(80000, 'x') + ":/a"}});
  REQUIRE_FALSE(long_one);
  CHECK(long_one.error().message().find("too long") != std::string::npos);
  ContainerOptions options;
  for (const std::string& text : {std::string(), std::string("x"), std::string("QUJD"), std::string("QUJD:QUJD")})
    CHECK_FALSE(use_own_part(options, variables({{kPartsVariable, text}, {"SLURM_JOB_ID_HET_GROUP_0", "70"}}), 70));
  Srun other;
  REQUIRE(other.part({{"container-image", "one"}}));
  REQUIRE(other.part({{"container-image", "two"}}));
  CHECK_FALSE(use_own_part(options, variables({{kPartsVariable, getenv(kPartsVariable)}}), 70));
}
