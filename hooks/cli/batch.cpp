// batch: a configuration script that says itself which container or image it is for. COMPAT.md section 3; it is what
// `#!/usr/bin/env -S enroot batch` runs.
#include <ostream>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "hooks/cli/commands.hpp"

namespace situla::cli {
namespace {

/// What the script's directives (or the environment) say that ENROOT_ROOTFS is.
Result<std::string> root_of(const Context& context, const std::string& script) {
  auto text = read_file(script);
  if (!text && text.error().kind() == ErrorKind::not_found) return fail(no_such_file(script));
  if (!text) return fail(std::move(text).error());
  EnrootConfig config = context.config;
  TRY(config.apply_directives(*text, script, context.log));
  std::string root = config.get("ENROOT_ROOTFS");
  if (root.empty())
    return fail(Error(ErrorKind::usage, "Missing directive ENROOT_ROOTFS in " + printable(script))
                    .with_code(ErrorCode::enroot_config)
                    .with_hint("a line #ENROOT_ROOTFS=NAME says which container, or image file, is meant"));
  return root;
}

struct BatchOptions {
  std::vector<std::string> fetched;  ///< as of StartCommand
};

Result<int> batch(const Context& context, const BatchOptions& options) {
  TRY(check_words(context, "batch", 1, "CONFIG is"));
  std::vector<std::string> words = context.words;
  const std::string script = words.front();
  TRY_ASSIGN(words.front(), root_of(context, script));
  return start_configured(context, script, words, options.fetched);
}

}  // namespace

void add_batch(Program& program, Actions& actions) {
  const auto [command, options] = add_command(
      program, actions, "batch",
      "Run the container that a configuration script names: batch [OPTIONS] CONFIG [COMMAND [ARG...]]", batch);
  command.pass_words_on();  // what follows the script belongs to the container
  add_fetched_option(command, options.fetched);
}

}  // namespace situla::cli
