#include <sstream>

#include <catch2/catch.hpp>

#include "hooks/cli/stream_log.hpp"

using namespace situla;

TEST_CASE("log lines carry enroot's words for the levels") {
  std::ostringstream stream;
  cli::StreamLog log(stream, /*verbose=*/false);
  log.info("one");
  log.warning("two");
  log.error("three {} %v %*");
  log.debug("hidden");
  CHECK(stream.str() == "[INFO] one\n[WARN] two\n[ERROR] three {} %v %*\n");
}

TEST_CASE("debug lines are shown when asked for") {
  std::ostringstream stream;
  cli::StreamLog log(stream, /*verbose=*/true);
  log.debug("detail");
  CHECK(stream.str() == "[DEBUG] detail\n");
}

TEST_CASE("a line is written when it is logged, not later") {
  std::ostringstream stream;
  cli::StreamLog log(stream, false);
  log.info("now");
  CHECK_FALSE(stream.str().empty());
}
