#include <iostream>

#include <unistd.h>

#include "common/base/installation.hpp"
#include "common/sys/file.hpp"
#include "hooks/cli/tool.hpp"

extern "C" char** environ;

namespace {

/// Returns only when there is no such program.
int run_full(char** argv) {
  const std::string here = situla::program_directory();
  const std::string name = "/situla-full";
  for (const std::string& path : {here + name, here + "/../libexec/situla" + name, situla::libexec_directory() + name})
    execve(path.c_str(), argv, environ);
  std::cerr << "[ERROR] program situla-full not found\n"
            << "hint: it belongs in " << situla::libexec_directory()
            << " beside Situla's other programs; install them again\n";
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  // Help of the whole program is about all commands.
  if (argc < 2 || !situla::cli::is_local_command({argv + 1, argv + argc})) return run_full(argv);
  return situla::cli::run_process(argc, argv, environ, situla::cli::add_local_commands);
}
