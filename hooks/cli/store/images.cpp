// images: what the node's store has.
#include "hooks/cli/commands.hpp"

namespace situla::cli {
namespace {

struct ImagesOptions {
  bool json = false, metrics = false;
};

Result<int> images(const Context& context, const ImagesOptions& options) {
  std::vector<std::string> arguments;
  if (options.json) arguments.emplace_back("--json");
  if (options.metrics) arguments.emplace_back("--metrics");
  return run_store_program(context, "images", std::move(arguments));
}

}  // namespace

void add_images(Program& program, Actions& actions) {
  const auto [command, options] =
      add_command(program, actions, "images", "List the images of the node's store", images);
  command.flag("--json", options.json, "For programs: bytes, and seconds since the epoch");
  command.flag("--metrics", options.metrics, "For Prometheus: what steps asked the store for, and what it holds");
}

}  // namespace situla::cli
