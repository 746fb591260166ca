// rm: images of the node's store that nobody uses go.
#include "hooks/cli/commands.hpp"

namespace situla::cli {
namespace {

struct RmOptions {
  std::vector<std::string> images;
  bool force = false;
};

Result<int> rm(const Context& context, const RmOptions& options) {
  std::vector<std::string> words = options.images;
  if (options.force) words.emplace_back("--force");
  return run_store_program(context, "rm", std::move(words));
}

}  // namespace

void add_rm(CLI::App& app, Actions& actions) {
  const auto [command, options] = add_command(app, actions, "rm", "Remove images from the node's store", rm);
  command.add_option("IMAGE", options.images, "References, with or without a tag, or the beginnings of digests")
      ->type_name("")
      ->required();
  command.add_flag("-f,--force", options.force, "Also what is in use, as far as is known; for the administrator");
}

}  // namespace situla::cli
