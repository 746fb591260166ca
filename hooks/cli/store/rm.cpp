// rm: images of the node's store that nobody uses go.
#include "hooks/cli/commands.hpp"

namespace situla::cli {
namespace {

struct RmOptions {
  std::vector<std::string> images;
};

Result<int> rm(const Context& context, const RmOptions& options) {
  std::vector<std::string> words = options.images;
  return run_store_program(context, "rm", std::move(words));
}

}  // namespace

void add_rm(CLI::App& app, Actions& actions) {
  const auto [command, options] = add_command(app, actions, "rm", "Remove images from the node's store", rm);
  command.add_option("IMAGE", options.images, "References, with or without a tag, or the beginnings of digests")
      ->type_name("")
      ->required();
}

}  // namespace situla::cli
