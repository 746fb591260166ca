// pin: images of the node's store that are not removed for others.
#include "hooks/cli/commands.hpp"

namespace situla::cli {
namespace {

struct PinOptions {
  bool undo = false;
  std::vector<std::string> images;
};

Result<int> pin(const Context& context, const PinOptions& options) {
  std::vector<std::string> words = options.images;
  if (options.undo) words.insert(words.begin(), "--undo");
  return run_store_program(context, "pin", std::move(words));
}

}  // namespace

void add_pin(CLI::App& app, Actions& actions) {
  const auto [command, options] = add_command(app, actions, "pin", "Keep images in the node's store", pin);
  command.add_flag("--undo", options.undo, "They may go again");
  command.add_option("IMAGE", options.images, "References, with or without a tag, or the beginnings of digests")
      ->type_name("")
      ->required();
}

}  // namespace situla::cli
