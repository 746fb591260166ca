// verify: do the images of the node's store hold what they held after their import?
#include "hooks/cli/commands.hpp"

namespace situla::cli {
namespace {

struct VerifyOptions {
  std::vector<std::string> images;
};

Result<int> verify(const Context& context, const VerifyOptions& options) {
  return run_store_program(context, "verify", options.images);
}

}  // namespace

void add_verify(CLI::App& app, Actions& actions) {
  const auto [command, options] =
      add_command(app, actions, "verify", "Read the images of the node's store and compare their checksums", verify);
  command.add_option("IMAGE", options.images, "References, with or without a tag, or the beginnings of digests")
      ->type_name("");
}

}  // namespace situla::cli
