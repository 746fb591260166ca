// Is progress told in lines for a log and as bars for a terminal?
#include <array>
#include <string>

#include <poll.h>
#include <pty.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/base/unique_fd.hpp"
#include "hooks/progress/progress_renderer.hpp"
#include "tests/support/memory_log.hpp"

using namespace situla;

namespace {

constexpr uint64_t kMebi = 1U << 20U;

/// Three layers of 100 MiB, the first done, the second half read, the third begun; 25 MiB/s for four seconds.
ProgressScreen half_way() {
  ProgressScreen screen;
  screen.begin("importing 3 layers, 300.0 MiB", 10);
  screen.layer({0, "layer 3 of 3 sha256:aa…", 0, 100 * kMebi});
  for (unsigned i = 0; i <= 40; ++i) screen.bytes(50 * kMebi + i * (5 * kMebi / 2), 300 * kMebi, 10 + i * 0.1);
  screen.layer({0, "layer 3 of 3 sha256:aa…", 100 * kMebi, 100 * kMebi, true});
  screen.layer({1, "layer 2 of 3 sha256:bb…", 50 * kMebi, 100 * kMebi});
  screen.layer({2, "layer 1 of 3 sha256:cc…", 0, 100 * kMebi});
  return screen;
}

}  // namespace

TEST_CASE("a bar per active layer and one for the total, with rate and time to go") {
  const ProgressScreen screen = half_way();
  const auto lines = screen.lines({73, 24}, 14);
  REQUIRE(lines.size() == 4);
  CHECK(lines[0] == "importing 3 layers, 300.0 MiB");
  CHECK(lines[1] ==
        "layer 2 of 3 sha256:bb… [" + std::string(15, '=') + ">" + std::string(15, ' ') + "] 50.0/100.0 MiB");
  CHECK(lines[2] == "layer 1 of 3 sha256:cc… [>" + std::string(31, ' ') + "] 0.0/100.0 MiB");
  CHECK_THAT(lines[3], Catch::StartsWith("total [===") && Catch::EndsWith("] 150.0/300.0 MiB  25.0 MiB/s  0:06"));
}

TEST_CASE("lines never fill the window, however small it is") {
  const ProgressScreen screen = half_way();
  for (const unsigned columns : {1U, 2U, 5U, 12U, 20U, 40U, 80U, 300U})
    for (const unsigned rows : {1U, 4U, 5U, 24U}) {
      const auto lines = screen.lines({columns, rows}, 14);
      CHECK(lines.size() <= std::max(2U, rows));
      for (const std::string& line : lines) CHECK(columns_of(line) <= std::max(1U, columns - 1));
    }
}

TEST_CASE("a stall is told, and the rate is that of the last seconds") {
  ProgressScreen screen = half_way();
  for (unsigned i = 0; i <= 100; ++i) screen.bytes(150 * kMebi, 300 * kMebi, 14 + i * 0.1);
  CHECK_THAT(screen.lines({80, 24}, 24).back(), Catch::EndsWith("150.0/300.0 MiB  stalled for 10 s"));
  CHECK(screen.line(24) == "importing 3 layers, 300.0 MiB: 150.0 MiB of 300.0 MiB, stalled for 10 s");
  CHECK(screen.waiting("trying again in 4 s"));
  CHECK_FALSE(screen.waiting("trying again in 4 s"));
  CHECK_THAT(screen.lines({80, 24}, 24).back(), Catch::EndsWith("150.0/300.0 MiB  stalled, trying again in 4 s"));
  for (const unsigned columns : {1U, 20U, 40U})
    CHECK(columns_of(screen.lines({columns, 24}, 24).back()) <= std::max(1U, columns - 1));
  CHECK(screen.waiting(""));
  for (unsigned i = 0; i <= 60; ++i) screen.bytes(150 * kMebi + i * kMebi / 100, 300 * kMebi, 24 + i * 0.1);
  CHECK_THAT(screen.lines({80, 24}, 30).back(), Catch::Contains("  0.1 MiB/s  "));
}

TEST_CASE("an import that begins is no stalled one") {
  ProgressScreen screen;
  screen.begin("importing", 0);
  screen.bytes(0, 10 * kMebi, 0);
  CHECK_THAT(screen.lines({80, 24}, 2).back(), Catch::EndsWith("  0.0 MiB/s  -:--"));
  CHECK_THAT(screen.lines({80, 24}, 6).back(), Catch::EndsWith("  stalled for 6 s"));
  CHECK(screen.line(2) == "importing: 0 B of 10.0 MiB");
}

TEST_CASE("the rate outlives that another node is the slowest, not that all begins anew") {
  ProgressScreen screen;
  screen.begin("importing on 2 nodes", 0);
  for (unsigned i = 0; i <= 40; ++i) screen.bytes((i % 2 == 0 ? i : i - 1) * kMebi, 100 * kMebi, i * 0.1);
  CHECK_THAT(screen.lines({80, 24}, 4).back(), Catch::Contains(" 10.0 MiB/s  "));
  for (unsigned i = 0; i <= 40; ++i)
    screen.bytes(((i % 2 == 0 ? i + 2 : i - 1) + 40) * kMebi, 100 * kMebi, 4 + i * 0.1);
  CHECK_THAT(screen.lines({80, 24}, 8).back(), Catch::Contains(" MiB/s  "));
  screen.bytes(0, 100 * kMebi, 8.1);
  CHECK_THAT(screen.lines({80, 24}, 8.2).back(), !Catch::Contains(" MiB/s  "));
}

TEST_CASE("many active layers do not push the total out of the window") {
  ProgressScreen screen;
  screen.begin("importing", 0);
  screen.bytes(0, 127 * kMebi, 0);
  for (size_t i = 0; i < 127; ++i) screen.layer({i, "layer", 0, kMebi});
  CHECK(screen.lines({80, 24}, 1).size() == 10);
  CHECK(screen.lines({80, 8}, 1).size() == 6);
  CHECK_THAT(screen.lines({80, 8}, 1).back(), Catch::StartsWith("total ["));
}

TEST_CASE("a phase without bytes is its text, and what remains of it has the time") {
  ProgressScreen screen;
  CHECK(screen.summary(1).empty());
  screen.begin("resolving x", 1);
  CHECK(screen.lines({80, 24}, 2) == std::vector<std::string>{"resolving x"});
  CHECK(screen.line(2).empty());
  CHECK(screen.waiting("no answer for 5 s"));
  CHECK(screen.lines({80, 24}, 2) == std::vector<std::string>{"resolving x: no answer for 5 s"});
  CHECK(screen.line(2) == "resolving x: no answer for 5 s");
  CHECK(screen.summary(2.25) == "resolving x: 1.2 s");
  screen.begin("importing", 3);
  CHECK(screen.lines({80, 24}, 3) == std::vector<std::string>{"importing"});
}

TEST_CASE("bars count right") {
  CHECK(progress_bar("", 0, 100 * kMebi, "", 60) == "[>" + std::string(43, ' ') + "] 0.0/100.0 MiB");
  CHECK(progress_bar("x", 9, 9, "", 80).find('>') == std::string::npos);
  CHECK(progress_bar("x", 0, 0, "", 80).find('>') == std::string::npos);
  CHECK(progress_bar("a long name that is cut", 0, kMebi, "", 30) == "a long name tha 0.0/1.0 MiB");
}

TEST_CASE("one line per phase in a log") {
  test::MemoryLog log;
  LogProgress progress(log);
  progress.phase("resolving x");
  progress.phase("importing 2 layers");
  progress.bytes(5, 10);
  progress.layer({0, "layer", 5, 10});
  progress.bytes(10, 10);
  progress.note("a note");
  progress.finish("done");
  CHECK_THAT(log.text(), Catch::Matches("resolving x: [0-9.]+ s\na note\nimporting 2 layers: [0-9.]+ s, 10 B\ndone\n"));
}

TEST_CASE("a terminal shows bars while it goes on, keeps one line per phase, and its cursor is always below") {
  int controller = -1;
  int terminal = -1;
  const winsize size{24, 60, 0, 0};
  REQUIRE(openpty(&controller, &terminal, nullptr, nullptr, &size) == 0);
  const UniqueFd controller_fd(controller);
  const UniqueFd terminal_fd(terminal);
  test::MemoryLog log;
  const auto progress = make_progress(terminal, log);
  // The kernel hands over what was written some time later, and in pieces.
  const auto shown_until = [&](std::string_view part) {
    std::string text;
    pollfd readable{controller, POLLIN, 0};
    while (!(text.ends_with('\n') && text.find(part) != std::string::npos) && poll(&readable, 1, 10'000) == 1) {
      std::array<char, 8192> buffer{};
      const ssize_t count = read(controller, buffer.data(), buffer.size());
      if (count <= 0) break;
      text.append(buffer.data(), static_cast<size_t>(count));
    }
    return text;
  };
  progress->phase("importing 1 layer");
  CHECK(shown_until("importing") == "importing 1 layer\x1b[K\r\n");
  progress->layer({0, "layer 1 of 1", kMebi, 2 * kMebi});
  usleep(110000);
  progress->bytes(kMebi, 2 * kMebi);
  const std::string bars = shown_until("total [");
  CHECK_THAT(bars, Catch::StartsWith("\x1b[1A\r\x1b[J") && Catch::Contains("\nlayer 1 of 1 [==") &&
                       Catch::Contains("\ntotal [==") && Catch::EndsWith("\x1b[K\r\n"));
  progress->note("a note");
  const std::string redrawn = shown_until("total [");
  CHECK_THAT(redrawn, Catch::StartsWith("\x1b[3A\r\x1b[Jimporting 1 layer"));
  progress->waiting("trying again in 4 s");
  CHECK_THAT(shown_until("total ["), Catch::StartsWith("\x1b[3A\r\x1b[J"));
  progress->finish("done");
  // What remains are lines of the log, which has its own way to the terminal.
  CHECK_THAT(log.text(), Catch::Matches("a note\nimporting 1 layer: [0-9.]+ s, 1.0 MiB\ndone\n"));
}

TEST_CASE("a waiting task draws only in long imports, in whole lines, and leaves nothing") {
  using std::chrono::milliseconds;
  const StepBars::Clock::time_point start{};
  StepBars bars(ProgressView{.columns = 80, .rows = 24});
  bars.phase("importing 1 layer", start);
  bars.layer({0, "layer 1 of 1", 0, 100 * kMebi});
  CHECK(bars.bytes(kMebi, 100 * kMebi, start + milliseconds(500)).empty());
  const std::string first = bars.bytes(2 * kMebi, 100 * kMebi, start + milliseconds(800));
  // Below the cursor, which is then where it was: two rows of room, the phase, the total.
  CHECK_THAT(first, Catch::StartsWith("\x1b[J\r\n\r\nimporting 1 layer\r\ntotal [") && Catch::EndsWith("\x1b[4A\r\n"));
  CHECK(std::count(first.begin(), first.end(), '\n') == 4);
  CHECK(bars.bytes(3 * kMebi, 100 * kMebi, start + milliseconds(900)).empty());
  const std::string second = bars.bytes(4 * kMebi, 100 * kMebi, start + milliseconds(1100));
  // What others have written meanwhile stays: nothing goes up before it has gone down.
  CHECK(second.starts_with("\x1b[J\r\n"));
  CHECK(second.find('A') > second.rfind("MiB"));
  CHECK(bars.finish(start + milliseconds(1500)) == "\x1b[Jimporting 1 layer: 1.5 s, 4.0 MiB\n");
  CHECK(bars.finish(start + milliseconds(1600)).empty());
  bars.phase("resolving x", start);
  CHECK_THAT(bars.waiting("no answer for 5 s", start + milliseconds(5000)),
             Catch::Contains("\nresolving x: no answer for 5 s\x1b["));
  CHECK(bars.waiting("no answer for 5 s", start + milliseconds(6000)).empty());
  CHECK(bars.finish(start + milliseconds(7000)) == "\x1b[Jresolving x: 7.0 s\n");

  StepBars many(ProgressView{80, 24, "node1, first of 4: "});
  many.phase("importing 1 layer", start);
  CHECK(many.bytes(kMebi, 100 * kMebi, start + milliseconds(800)).find("\nnode1, first of 4: importing 1 layer\r") !=
        std::string::npos);
  StepBars low(ProgressView{.columns = 80, .rows = 4});
  low.phase("importing 1 layer", start);
  CHECK(low.bytes(kMebi, 100 * kMebi, start + milliseconds(800)).empty());
  StepBars none;
  none.phase("importing 1 layer", start);
  CHECK(none.bytes(kMebi, 100 * kMebi, start + std::chrono::seconds(9)).empty());
}

TEST_CASE("a step without a terminal, and a log, have a line every half minute while it lasts") {
  using std::chrono::seconds;
  const StepBars::Clock::time_point begin{};
  StepBars bars;
  bars.phase("importing 7 layers", begin);
  const auto line = [&](int second) {
    CHECK(bars.bytes(static_cast<uint64_t>(second) << 20U, uint64_t{1024} << 20U, begin + seconds(second)).empty());
    return bars.line(begin + seconds(second));
  };
  std::vector<std::pair<int, std::string>> said;
  for (int second = 1; second < 80; ++second)
    if (std::string text = line(second); !text.empty()) said.emplace_back(second, std::move(text));
  REQUIRE(said.size() == 2);
  CHECK(said[0] == std::pair(30, std::string("importing 7 layers: 30.0 MiB of 1.0 GiB, 1.0 MiB/s, 16:34 left")));
  CHECK(said[1].first == 60);
  CHECK(bars.last_line(begin + seconds(80)) == "importing 7 layers: 80.0 s, 79.0 MiB, 1.0 MiB/s");
  CHECK(bars.last_line(begin + seconds(80)).empty());
  bars.phase("writing", begin + seconds(100));
  CHECK(line(110).empty());
  CHECK_FALSE(line(131).empty());

  StepBars drawn(ProgressView{.columns = 80, .rows = 24});
  drawn.phase("importing 7 layers", begin);
  (void)drawn.bytes(1, 2, begin + seconds(40));
  CHECK(drawn.line(begin + seconds(40)).empty());

  StepBars resolving;
  resolving.phase("resolving x", begin);
  CHECK(resolving.line(begin + seconds(31)).empty());
  CHECK(resolving.waiting("no answer for 31 s", begin + seconds(31)).empty());
  CHECK(resolving.line(begin + seconds(31)) == "resolving x: no answer for 31 s");
  CHECK(resolving.line(begin + seconds(32)).empty());

  StepBars other(ProgressView{.silent = true});
  other.phase("importing 7 layers", begin);
  (void)other.bytes(1, 2, begin + seconds(40));
  CHECK(other.line(begin + seconds(40)).empty());
}
