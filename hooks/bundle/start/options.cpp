#include <CLI/CLI.hpp>

#include "common/base/text.hpp"
#include "hooks/bundle/start/start.hpp"
#include "hooks/bundle/start_options.hpp"

namespace situla::bundle {
namespace {

void declare(CLI::App& app, Options& options) {
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // as `situla` has it
  app.prefix_command();  // what follows belongs to the container
  app.set_help_flag();
  app.add_flag("-h,--help", options.help, "Print the usage");
  app.add_flag("-i,--info", options.information, "Say what this bundle is");
  app.add_flag("-k,--keep", options.keep, "Extract to the target directory, run there, and leave it there");
  app.add_flag("-q,--quiet", options.quiet, "Say nothing about what is done");
  app.add_flag("-v,--verify", options.verify, "Say whether this machine can run the bundle");
  app.add_flag("-x,--extract", options.extract, "Extract to the target directory and run nothing");
  add_start_options(app, options.start, "Configuration script");
}

}  // namespace

Result<Options> parse(const std::vector<std::string>& words) {
  Options options;
  CLI::App app;
  declare(app, options);
  try {
    std::vector<std::string> reversed(words.rbegin(), words.rend());
    app.parse(reversed);
  } catch (const CLI::Error& error) {
    return fail(
        Error(ErrorKind::usage, error.what()).with_code(ErrorCode::option).with_hint("--help lists the options"));
  }
  options.command = app.remaining();
  const bool separated = !options.command.empty() && options.command.front() == "--";
  if (separated) options.command.erase(options.command.begin());
  if (!separated && !options.command.empty() && options.command.front().starts_with('-'))
    return fail(Error(ErrorKind::usage, "unknown option " + printable(options.command.front()))
                    .with_code(ErrorCode::option)
                    .with_hint("--help lists the options"));
  return options;
}

std::string usage(const std::string& program, const std::string& description) {
  Options options;
  CLI::App app(description, program);
  declare(app, options);
  std::string text = app.help();
  constexpr std::string_view kOptions = "[OPTIONS]";
  if (const size_t at = text.find(kOptions); at != std::string::npos)
    text.insert(at + kOptions.size(), " [--] [COMMAND] [ARG...]");
  return text;
}

}  // namespace situla::bundle
