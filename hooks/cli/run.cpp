// run: one command in an image, of which nothing is kept.
#include "common/spec/image_reference.hpp"
#include "hooks/cli/commands.hpp"

namespace situla::cli {
namespace {

/// As start, but a word that is no file is an image of a registry.
Result<int> run_image(const Context& context, const StartCommand& options) {
  TRY(check_words(context, "run", 1, "IMAGE is"));
  const std::string& image = context.words.front();
  TRY(check_image(image));
  if (image_kind(image) == ImageKind::path) return start_words(context, options, context.words);
  return fail(start_image(context, image));
}

}  // namespace

void add_run(CLI::App& app, Actions& actions) {
  const auto [command, options] = add_command(
      app, actions, "run", "Run a command in an image, and keep nothing of it: run [OPTIONS] IMAGE [COMMAND [ARG...]]",
      run_image);
  declare_start(command, options);
}

}  // namespace situla::cli
