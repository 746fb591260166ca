// situla-builder: the job user's side of one step. Started by the broker, already as the user; see README.md.
#include <csignal>
#include <string_view>

#include <sys/stat.h>

#include "common/sys/process/process.hpp"
#include "hooks/builder/modes.hpp"

namespace {

int usage() {
  (void)std::fputs(
      "situla-builder is started by situla-broker: container MODE SCRATCH | request [before-job | image REFERENCE] | "
      "clean "
      "PATH | sweep "
      "| "
      "epilog JOB HOME\n",
      stderr);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  situla::take_program_name();
  (void)std::signal(SIGPIPE, SIG_IGN);
  umask(022);
  const std::string_view mode = argc > 1 ? argv[1] : "";
  if (mode == "container" && argc == 4) return situla::build_container(argv[2], argv[3]);
  if (mode == "request" && argc == 2) return situla::write_import_request(situla::Programs::allowed);
  if (mode == "request" && argc == 3 && argv[2] == std::string_view("before-job"))
    return situla::write_import_request(situla::Programs::forbidden);
  if (mode == "request" && argc == 4 && argv[2] == std::string_view("image"))
    return situla::write_import_request(situla::Programs::allowed, argv[3]);
  if (mode == "clean" && argc == 3) return situla::clean_scratch(argv[2]);
  if (mode == "sweep" && argc == 2) return situla::sweep_unfinished();
  if (mode == "epilog" && argc == 4) return situla::remove_job_containers(argv[2], argv[3]);
  return usage();
}
