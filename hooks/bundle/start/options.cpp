#include "common/base/text.hpp"
#include "hooks/arguments/arguments.hpp"
#include "hooks/bundle/start/start.hpp"
#include "hooks/bundle/start_options.hpp"

namespace situla::bundle {
namespace {

void declare(Program& program, Options& options) {
  const Command command = program.options();
  command.pass_words_on();  // to the container
  command.flag("-h,--help", options.help, "Print the usage");
  command.flag("-i,--info", options.information, "Say what this bundle is");
  command.flag("-k,--keep", options.keep, "Extract to the target directory, run there, and leave it there");
  command.flag("-q,--quiet", options.quiet, "Say nothing about what is done");
  command.flag("-v,--verify", options.verify, "Say whether this machine can run the bundle");
  command.flag("-x,--extract", options.extract, "Extract to the target directory and run nothing");
  add_start_options(command, options.start, "Configuration script");
}

}  // namespace

Result<Options> parse(const std::vector<std::string>& words) {
  Options options;
  Program program("", "");
  declare(program, options);
  TRY_ASSIGN(CommandLine asked, program.parse(words));
  options.command = std::move(asked.words);
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
  Program declared(program, description);
  declare(declared, options);
  std::string text = declared.help();
  constexpr std::string_view kOptions = "[OPTIONS]";
  if (const size_t at = text.find(kOptions); at != std::string::npos)
    text.insert(at + kOptions.size(), " [--] [COMMAND] [ARG...]");
  return text;
}

}  // namespace situla::bundle
