// What slurmd logs about its node, and that nothing which the examining program does can keep slurmd from starting.
#include "plugin/node_report.hpp"

#include <sys/stat.h>

#include <catch2/catch.hpp>

#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

Result<NodeReport> examine(const std::string& script, std::chrono::seconds limit = std::chrono::seconds(60)) {
  const test::TempDir dir;
  const std::string program = dir.write("situla", "#!/bin/sh\n" + script + "\n");
  REQUIRE(chmod(program.c_str(), 0755) == 0);
  return examine_node(program, "/etc/slurm/slurm.conf", limit);
}

}  // namespace

TEST_CASE("the report is one line, and one for each error") {
  const auto good = examine("[ \"$*\" = 'doctor --brief' ] && echo \"images by kernel mount\"");
  REQUIRE(good);
  CHECK(good->images == "images by kernel mount");
  CHECK(good->errors.empty());
  const auto bad = examine("echo 'images by FUSE (why)'; echo 'error: store: is away'; echo 'error: x'; exit 1");
  REQUIRE(bad);
  CHECK(bad->images == "images by FUSE (why)");
  CHECK(bad->errors == std::vector<std::string>{"store: is away", "x"});
  CHECK(examine("echo $SLURM_CONF")->images == "/etc/slurm/slurm.conf");
  CHECK(examine("printf 'a\\033[31mb\\n'")->images == "a\\x1b[31mb");
}

TEST_CASE("a program that hangs is ended in time, with what it started") {
  const auto begin = std::chrono::steady_clock::now();
  const auto hanging = examine("echo images; sleep 100 & sleep 100", std::chrono::seconds(1));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));
  REQUIRE_FALSE(hanging);
  CHECK_THAT(hanging.error().message(), Catch::Contains("takes longer than 1 s"));
  CHECK(hanging.error().code() == ErrorCode::helper);
}

TEST_CASE("a program that is missing, crashes, says nothing or too much is an error") {
  CHECK_THAT(examine_node("/nosuch/situla", "").error().message(), Catch::Contains("/nosuch/situla"));
  CHECK_THAT(examine("kill -SEGV $$").error().message(), Catch::Contains("killed by SIGSEGV"));
  CHECK_THAT(examine("exit 0").error().message(), Catch::Contains("exited with return code 0"));
  CHECK_THAT(examine("echo no such option; exit 106").error().message(), Catch::Contains("no such option"));
  CHECK_FALSE(examine("exec yes", std::chrono::seconds(1)));
}
