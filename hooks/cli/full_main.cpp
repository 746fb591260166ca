#include "hooks/cli/tool.hpp"

extern "C" char** environ;

int main(int argc, char** argv) {
  return situla::cli::run_process(argc, argv, environ, situla::cli::add_all_commands);
}
