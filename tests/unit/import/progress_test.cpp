// Is progress told in lines for a log and as a bar for a terminal?
#include <catch2/catch.hpp>

#include "hooks/import/progress_renderer.hpp"
#include "tests/unit/import/memory_log.hpp"

using namespace situla;

TEST_CASE("the bar fits its width and counts right") {
  CHECK(progress_bar(0, 100 << 20, 0, 60) == "[>" + std::string(42, ' ') + "] 0.0/100.0 MiB");
  CHECK(progress_bar(50 << 20, 100 << 20, 2, 60).find("50.0/100.0 MiB  25.0 MiB/s  0:02") != std::string::npos);
  for (const unsigned width : {5U, 20U, 40U, 79U, 200U}) CHECK(progress_bar(7, 9, 1, width).size() <= width);
  CHECK(progress_bar(9, 9, 1, 80).find('>') == std::string::npos);
}

TEST_CASE("one line per phase in a log") {
  test::MemoryLog log;
  LogProgress progress(log);
  progress.phase("resolving x");
  progress.phase("importing 2 layers");
  progress.bytes(5, 10);
  progress.bytes(10, 10);
  progress.note("a note");
  progress.finish("done");
  CHECK(log.text == "resolving x: 0.0 s\na note\nimporting 2 layers: 0.0 s, 10 B\ndone\n");
}
