// situla-importer: started by situla-broker, as the service user, or with the one word "user" as the job user.
#include <string_view>

#include "hooks/importer/importer.hpp"
#include "hooks/importer/user_import.hpp"

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "user") return situla::import_as_user();
  return situla::run_importer({argv, argv + argc}, 0, 3);
}
