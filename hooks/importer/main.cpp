// situla-importer: started by situla-broker, as the import user, or with the first word "user" or "site" as the job
// user.
#include <string_view>

#include "common/protocol/contract.hpp"
#include "common/sys/process/process.hpp"
#include "hooks/importer/modes.hpp"

int main(int argc, char** argv) {
  situla::take_program_name();
  if ((argc == 3 || argc == 4) && std::string_view(argv[1]) == "user")
    return situla::import_as_user(argv[2], argc == 4 ? argv[3] : "");
  if (argc > 1 && std::string_view(argv[1]) == "site") return situla::run_site_program({argv, argv + argc});
  return situla::run_importer(situla::importer_fd::kBroker, situla::importer_fd::kStore);
}
