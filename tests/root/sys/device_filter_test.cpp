#include "common/sys/process/device_filter.hpp"

#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "common/sys/process/cgroup.hpp"
#include "common/sys/process/process.hpp"
#include "tests/support/skip.hpp"

using namespace situla;

namespace {

/// 0: it can be opened.
int errno_of_open(const char* path) {
  const UniqueFd fd(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  return fd ? 0 : errno;
}

/// What a process that lives in the cgroup meets: 1, the plain devices; 2, no others.
int look_from(const std::string& directory) {
  const pid_t child = fork();
  if (child == 0) {
    const UniqueFd procs(open((directory + "/cgroup.procs").c_str(), O_WRONLY));
    if (write(procs.get(), "0", 1) != 1) _exit(100);
    const bool plain = errno_of_open("/dev/null") == 0 && errno_of_open("/dev/urandom") == 0;
    const bool closed = errno_of_open("/dev/loop-control") == EPERM && errno_of_open("/dev/fuse") == EPERM;
    _exit((plain ? 1 : 0) + (closed ? 2 : 0));
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WEXITSTATUS(status);
}

}  // namespace

TEST_CASE("what lives in a cgroup without devices opens none but the plain ones") {
  if (errno_of_open("/dev/loop-control") != 0 || errno_of_open("/dev/fuse") != 0)
    SITULA_SKIP("there is no device here that can be opened");
  const std::string text = read_file("/proc/self/cgroup").value();
  int tried = 0;
  for (const CgroupLine& line : cgroup_lines(text)) {
    if (!line.v2() && line.controllers.find("devices") == std::string_view::npos) continue;
    const auto found = find_cgroup(line);
    if (!found || !*found) continue;
    const std::string directory = (*found)->path + "/situla-test-" + std::to_string(getpid());
    CAPTURE(directory);
    if (mkdir(directory.c_str(), 0755) != 0) continue;
    const int before = look_from(directory);
    const auto closed = allow_plain_devices(directory, line.v2() ? CgroupVersion::v2 : CgroupVersion::v1);
    const int after = look_from(directory);
    CHECK(rmdir(directory.c_str()) == 0);
    CHECK(before == 1);
    CHECK(closed);
    CHECK(after == 3);
    ++tried;
  }
  if (tried == 0) SITULA_SKIP("no cgroup can be made here");
}
