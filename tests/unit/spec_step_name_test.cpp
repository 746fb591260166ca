#include <catch2/catch.hpp>

#include "common/spec/step_name.hpp"

using namespace situla;

TEST_CASE("JOB.STEP as Slurm writes it, and nothing else, is a step") {
  REQUIRE(parse_step_name("12.0"));
  CHECK(parse_step_name("12.0")->text() == "12.0");
  CHECK(parse_step_name("12.0")->scratch() == "pyxis_12.0");
  CHECK(parse_step_name("12.batch")->text() == "12.4294967291");
  CHECK(parse_step_name("12.interactive")->text() == "12.4294967290");
  for (const char* text :
       {"", "12", "12.", ".0", "12.0.1", "24.03", "012.0", "12.x", "a.0", "-1.0", "4294967296.0", "12.0 "})
    CHECK_FALSE(parse_step_name(text));
}

TEST_CASE("a scratch directory tells its step, with or without a random ending") {
  CHECK(step_of_scratch("pyxis_12.3")->text() == "12.3");
  CHECK(step_of_scratch("pyxis_12.3.0123456789abcdef")->text() == "12.3");
  for (const char* text : {"pyxis_x", "pyxis_12_x", "12.3", "pyxis_", "pyxis_12."}) CHECK_FALSE(step_of_scratch(text));
}
