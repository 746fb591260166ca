// situla-store: started by situla-broker, as the service user.
#include "hooks/store/store_program.hpp"

int main(int argc, char** argv) {
  return situla::run_store({argv, argv + argc});
}
