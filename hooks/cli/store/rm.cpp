// rm: images of the node's store that nobody uses go, or containers.
#include "hooks/cli/commands.hpp"

namespace situla::cli {
namespace {

struct RmOptions {
  std::vector<std::string> images;
  bool force = false;
};

/// docker's word for both: what is a container of the user's is removed as `remove` does it.
Result<int> rm(const Context& context, const RmOptions& options) {
  std::vector<std::string> containers, words;
  for (const std::string& word : options.images)
    (find_container(context.config, word) ? containers : words).push_back(word);
  TRY(remove_all(context, containers, options.force));
  if (words.empty()) return 0;
  if (options.force) words.emplace_back("--force");
  return run_store_program(context, "rm", std::move(words));
}

}  // namespace

void add_rm(Program& program, Actions& actions) {
  const auto [command, options] =
      add_command(program, actions, "rm", "Remove images from the node's store, or containers", rm);
  command
      .option("IMAGE", options.images,
              "References, with or without a tag, or the beginnings of digests; names of containers")
      .value("")
      .required();
  command.flag("-f,--force", options.force,
               "Do not ask; also what is in use, as far as is known, for the administrator");
}

}  // namespace situla::cli
