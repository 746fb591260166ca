#include <algorithm>
#include <csignal>

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/sys/kernel.hpp"
#include "common/sys/process/process.hpp"

namespace situla {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  for (const std::string& text : strings) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

/// Every source is copied above all targets first, so that no dup2() overwrites one that is still needed.
/// `program` is kept as well, and becomes its new number.
Result<void> arrange(std::vector<std::pair<int, int>> fds, int& program) {
  int first_free = 3;
  for (const auto& [source, target] : fds) first_free = std::max({first_free, target + 1});
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) return fail_errno(errno, "open /dev/null");
  for (int standard = 0; standard <= 2; ++standard) {
    const bool mapped =
        std::any_of(fds.begin(), fds.end(), [&](const auto& entry) { return entry.second == standard; });
    if (!mapped) fds.emplace_back(null, standard);
  }
  std::vector<int> targets;
  if (program >= 0) {
    program = fcntl(program, F_DUPFD_CLOEXEC, first_free);
    if (program < 0) return fail_errno(errno, "move descriptors");
    targets.push_back(program);
  }
  for (auto& [source, target] : fds) {
    source = fcntl(source, F_DUPFD_CLOEXEC, first_free);
    if (source < 0) return fail_errno(errno, "move descriptors");
    targets.push_back(target);
  }
  for (const auto& [source, target] : fds)
    if (dup2(source, target) < 0) return fail_errno(errno, "map descriptors");
  close_other_fds(0, targets);
  return {};
}

}  // namespace

ProcessName::ProcessName(const char* name) {
  (void)prctl(PR_GET_NAME, before_.data());
  (void)prctl(PR_SET_NAME, name);
}

ProcessName::~ProcessName() {
  (void)prctl(PR_SET_NAME, before_.data());
}

Error execute(const SpawnOptions& options) {
  const std::vector<char*> arguments = pointers(options.arguments);
  const std::vector<char*> environment = pointers(options.environment);
  if (options.die_with_parent && prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0)
    return Error::from_errno(errno, "ask to die with the parent");
  if (options.new_session) (void)setsid();
  if (options.no_new_privileges && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return Error::from_errno(errno, "give up privileges");
  if (chdir(options.directory.c_str()) != 0) return Error::from_errno(errno, "enter directory " + options.directory);
  int program = options.program_fd;
  if (auto arranged = arrange(options.fds, program); !arranged) return std::move(arranged).error();
  reset_signals();
  if (program >= 0)
    (void)kernel::execveat(program, arguments.data(), environment.data());
  else
    execve(options.program.c_str(), arguments.data(), environment.data());
  return Error::from_errno(errno, "execute " + options.program);
}

}  // namespace situla
