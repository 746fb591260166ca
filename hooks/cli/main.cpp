#include <iostream>

#include "hooks/cli/tool.hpp"

extern "C" char** environ;

int main(int argc, char** argv) {
  using namespace situla::cli;
  if (argc > 1 && is_local_command({argv + 1, argv + argc}))
    return run_process(argc, argv, environ, add_local_commands);
  // Help of the whole program is about all commands.
  const std::vector<std::string> words(argv, argv + argc);
  const std::string program = words.empty() ? "situla" : words.front();
  const situla::Error error = become_full_program(program, {words.begin() + (words.empty() ? 0 : 1), words.end()});
  std::cerr << "[ERROR] " << error.text() << "\n";
  return 1;
}
