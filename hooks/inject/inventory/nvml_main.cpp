// situla-nvml LIBRARY: asks NVIDIA's management library and prints its answer (nvml_answer.hpp). That library may make
// device nodes, change their modes, start programs or hang: this process has no rights with which it could.
#include <iostream>

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/sys/identity.hpp"
#include "common/sys/process/process.hpp"
#include "hooks/inject/inventory/nvml_library.hpp"

namespace situla::nvidia {
namespace {

constexpr uid_t kNobody = 65534;

/// Root becomes nobody, with the group of the device nodes; everybody else stays who they are. Not in a user namespace
/// of a single id, where root is an ordinary user already.
Result<void> become_nobody() {
  if (geteuid() != 0 || !is_mapped_uid(kNobody)) return {};
  struct stat status {};
  const bool has_group = stat("/dev/nvidiactl", &status) == 0 && status.st_gid != 0;
  const gid_t gid = has_group ? status.st_gid : static_cast<gid_t>(kNobody);
  TRY(become({kNobody, gid, {gid}}));
  // Changing ids made it forget.
  return die_with_parent();
}

void limit(int resource, rlim_t value) {
  const rlimit limits{value, value};
  (void)setrlimit(static_cast<__rlimit_resource>(resource), &limits);
}

Result<NvmlAnswer> ask(const std::string& library) {
  TRY(become_nobody());
  TRY(drop_all_capabilities());
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_FSIZE, 0);
  limit(RLIMIT_CPU, 30);
  limit(RLIMIT_NOFILE, 256);
  return ask_nvml(library);
}

}  // namespace
}  // namespace situla::nvidia

int main(int argc, char** argv) {
  if (argc != 2 || argv[1][0] != '/') {
    std::cerr << "usage: situla-nvml /PATH/OF/libnvidia-ml.so.1\n";
    return 2;
  }
  using namespace situla::nvidia;
  NvmlReport report;
  auto answer = ask(argv[1]);
  if (answer)
    report.answer = std::move(*answer);
  else
    report.error = answer.error().message();
  std::cout << JsonWriter::text(JsonWriter::object(report)) << std::flush;
  // _exit: destructors of the library could hang.
  _exit(answer ? 0 : 1);
}
