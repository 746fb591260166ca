// Programs run to their end, within limits.
#include "common/sys/process/run_program.hpp"

#include <csignal>

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "tests/support/shell.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;
using situla::test::shell;
using std::chrono::milliseconds;

namespace {

RunLimits limits_of(milliseconds time, milliseconds grace = milliseconds(20000)) {
  RunLimits limits;
  limits.time = time;
  limits.error_bytes = 8;
  limits.grace = grace;
  return limits;
}

}  // namespace

TEST_CASE("what a program prints, the end of what it complains about, and its status") {
  const auto run = run_program(shell("echo out; echo a long complaint >&2; exit 3"), limits_of(milliseconds(20000)));
  REQUIRE(run);
  CHECK(run->end == ProgramRun::End::by_itself);
  CHECK(run->output == "out\n");
  CHECK(run->errors == "mplaint\n");
  CHECK(run->status->code == 3);
  CHECK_FALSE(run->success());
  CHECK_FALSE(run_program({"/nonexistent", -1, {"x"}, {}, {}}, {}));
}

TEST_CASE("what a program leaves running is not waited for, even when it holds the output") {
  const auto run = run_program(shell("sleep 1000 & echo $!"), limits_of(milliseconds(20000)));
  REQUIRE(run);
  CHECK(run->success());
  CHECK(kill(static_cast<pid_t>(std::stol(run->output)), SIGKILL) == 0);
}

TEST_CASE("a program that takes too long is told to end, and killed when it does not, with its group") {
  const auto told = run_program(shell("trap 'echo told; exit 4' TERM; echo on; while :; do sleep 0.05; done"),
                                limits_of(milliseconds(5000)));
  REQUIRE(told);
  CHECK(told->end == ProgramRun::End::too_late);
  CHECK(told->output == "on\ntold\n");
  CHECK(told->status->code == 4);
  SpawnOptions stubborn = shell("trap '' TERM; sleep 1000 & echo $!; wait; wait");
  stubborn.new_session = true;
  const auto killed = run_program(stubborn, limits_of(milliseconds(5000), milliseconds(2000)));
  REQUIRE(killed);
  CHECK(killed->end == ProgramRun::End::too_late);
  REQUIRE(killed->status);
  CHECK(killed->status->signal == SIGKILL);
  const auto left = static_cast<pid_t>(std::stol(killed->output));
  for (int turn = 0; turn < 100 && kill(left, 0) == 0; ++turn) usleep(50000);  // until somebody reaps it
  CHECK(kill(left, 0) != 0);
}

TEST_CASE("a program that loses the first word is told again") {
  const auto told = run_program(shell("trap 'trap - TERM' TERM; echo on; while :; do sleep 0.05; done"),
                                limits_of(milliseconds(2000)));
  REQUIRE(told);
  CHECK(told->end == ProgramRun::End::too_late);
  REQUIRE(told->status);
  CHECK(told->status->signal == SIGTERM);
}

TEST_CASE("a program that prints too much is ended, and one that nobody wants any more") {
  RunLimits limits;
  limits.grace = milliseconds(20000);
  limits.output_bytes = 100;
  const auto chatty = run_program(shell("yes"), limits);
  REQUIRE(chatty);
  CHECK(chatty->end == ProgramRun::End::too_much_output);
  int asked = 0;
  limits.cancelled = [&asked] { return ++asked == 3; };
  const auto cancelled = run_program(shell("sleep 1000"), limits);
  REQUIRE(cancelled);
  CHECK(cancelled->end == ProgramRun::End::cancelled);
  CHECK(cancelled->status->signal == SIGTERM);
}

TEST_CASE("a program is root's when it is a file of root's that nobody else may write to") {
  CHECK(check_program_of_root("/bin/sh"));
  CHECK(check_program_of_root("/nowhere/sh").error().errnum() == ENOENT);
  CHECK(check_program_of_root("/usr/bin").error().kind() == ErrorKind::denied);
  const test::TempDir dir;
  const std::string mine = dir.write("mine", "#!/bin/sh\n");
  REQUIRE(chmod(mine.c_str(), 0755) == 0);
  CHECK(check_program_of_root(mine).has_value() == (geteuid() == 0));
  REQUIRE(chmod(mine.c_str(), 0775) == 0);
  CHECK_FALSE(check_program_of_root(mine));
}
