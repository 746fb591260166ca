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

void add_pin(Program& program, Actions& actions) {
  const auto [command, options] = add_command(program, actions, "pin", "Keep images in the node's store", pin);
  command.flag("--undo", options.undo, "They may go again");
  command.option("IMAGE", options.images, "References, with or without a tag, or the beginnings of digests")
      .value("")
      .required();
}

}  // namespace situla::cli
