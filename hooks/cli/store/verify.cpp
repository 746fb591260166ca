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

void add_verify(Program& program, Actions& actions) {
  const auto [command, options] = add_command(
      program, actions, "verify", "Read the images of the node's store and compare their checksums", verify);
  command.option("IMAGE", options.images, "References, with or without a tag, or the beginnings of digests").value("");
}

}  // namespace situla::cli
