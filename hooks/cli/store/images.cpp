// images: what the node's store has.
#include "hooks/cli/commands.hpp"

namespace situla::cli {
namespace {

struct ImagesOptions {
  bool json = false;
};

Result<int> images(const Context& context, const ImagesOptions& options) {
  return run_store_program(context, "images",
                           options.json ? std::vector<std::string>{"--json"} : std::vector<std::string>());
}

}  // namespace

void add_images(CLI::App& app, Actions& actions) {
  const auto [command, options] = add_command(app, actions, "images", "List the images of the node's store", images);
  command.add_flag("--json", options.json, "For programs: bytes, and seconds since the epoch");
}

}  // namespace situla::cli
