// run: one command in an image, of which nothing is kept.
#include "common/base/text.hpp"
#include "common/spec/image_reference.hpp"
#include "hooks/cli/commands.hpp"
#include "hooks/edf/edf.hpp"

namespace situla::cli {
namespace {

/// As start, but a word that is no file is an image of a registry. words: the image and the command.
Result<int> run_words(const Context& context, const StartCommand& options, const std::vector<std::string>& words) {
  const std::string& image = words.front();
  TRY(check_image(image));
  if (image_kind(image) == ImageKind::path) return start_words(context, options, words);
  if (context.start_fetched == nullptr || words == context.words) return fail(fetch_first(context, {image, {}}));
  // As if the image of the environment had been written behind the options.
  Invocation invocation = context.invocation;
  invocation.arguments.insert(invocation.arguments.end() - static_cast<ptrdiff_t>(context.words.size()), image);
  return fail(fetch_first({invocation, context.streams, context.log, context.config, words, context.start_fetched},
                          {image, {}}));
}

/// With --environment the image is that of the file, and all words are the command.
Result<int> run_image(const Context& context, const StartCommand& options) {
  if (options.environment.empty()) {
    TRY(check_words(context, "run", 1, "IMAGE is"));
    return run_words(context, options, context.words);
  }
  TRY_ASSIGN(const edf::Edf edf, load_edf(options.environment, edf_places(context)));
  if (!edf.combined.image || edf.combined.image->value.empty())
    return fail(Error(ErrorKind::usage, "environment " + printable(options.environment) + " names no image")
                    .with_code(ErrorCode::environment_file)
                    .with_hint("'start --environment' puts it on a container or an image of your choice"));
  std::vector<std::string> words = context.words;
  words.insert(words.begin(), edf.combined.image->value);
  return run_words(context, options, words);
}

}  // namespace

void add_run(Program& program, Actions& actions) {
  const auto [command, options] = add_command(program, actions, "run",
                                              "Run a command in an image, and keep nothing of it: run [OPTIONS] "
                                              "IMAGE|--environment=NAME|FILE [COMMAND [ARG...]]",
                                              run_image);
  declare_start(command, options);
}

}  // namespace situla::cli
