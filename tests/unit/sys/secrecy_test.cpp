#include "common/sys/process/secrecy.hpp"

#include <csignal>
#include <cstdlib>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

/// Whether a child that dies of SIGABRT leaves a core dump.
bool dumps(const std::string& directory, bool keep) {
  const pid_t pid = fork();
  if (pid == 0) {
    // Catch2 prints what happened to us on SIGABRT.
    (void)std::signal(SIGABRT, SIG_DFL);
    rlimit core{};
    getrlimit(RLIMIT_CORE, &core);
    core.rlim_cur = core.rlim_max;
    setrlimit(RLIMIT_CORE, &core);
    if (chdir(directory.c_str()) != 0) _exit(1);
    if (keep) {
      const KeepSecrets outer;
      const KeepSecrets inner;
      abort();
    }
    abort();
  }
  int status = 0;
  waitpid(pid, &status, 0);
  REQUIRE(WIFSIGNALED(status));
  return WCOREDUMP(status);
}

}  // namespace

TEST_CASE("a process that keeps secrets leaves no core dump") {
  const test::TempDir directory;
  CHECK_FALSE(dumps(directory.path(), true));
  // What this machine does otherwise is its administrator's business; said so that one sees whether the check above
  // means something.
  INFO("without it: " << dumps(directory.path(), false));
}

TEST_CASE("keeping secrets nests, and ends") {
  rlimit before{};
  getrlimit(RLIMIT_CORE, &before);
  REQUIRE(prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1);
  {
    const KeepSecrets outer;
    { const KeepSecrets inner; }
    CHECK(prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 0);
    rlimit now{};
    getrlimit(RLIMIT_CORE, &now);
    CHECK(now.rlim_cur == 0);
    // Its own descriptors stay reachable by name.
    CHECK(open_file("/proc/self/fd/0", O_PATH));
  }
  CHECK(prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1);
  rlimit after{};
  getrlimit(RLIMIT_CORE, &after);
  CHECK(after.rlim_cur == before.rlim_cur);
}
