// explain: what an error's code means, and what to do about it.
#include <ostream>
#include <vector>

#include "common/base/error_code.hpp"
#include "common/base/text.hpp"
#include "hooks/cli/commands.hpp"
#include "hooks/cli/report/manual.hpp"

namespace situla::cli {
namespace {

constexpr size_t kWidth = 80;

struct ExplainOptions {
  std::string what;
};

std::vector<std::string_view> code_names() {
  std::vector<std::string_view> names;
  for (int i = 1; i <= static_cast<int>(last_of(ErrorCode{})); ++i)
    names.push_back(to_string(static_cast<ErrorCode>(i)));
  return names;
}

void list_codes(std::ostream& out) {
  constexpr size_t kColumn = 22;
  for (const std::string_view name : code_names())
    out << flush_left(name, kColumn) << manual_summary(error_code_from_string(name)) << '\n';
}

Result<int> explain(const Context& context, const ExplainOptions& options) {
  if (options.what.empty()) {
    list_codes(context.streams.out);
    return 0;
  }
  // As it stands in the message, too.
  std::string_view word = options.what;
  if (word.starts_with('[') && word.ends_with(']')) word = word.substr(1, word.size() - 2);
  const ErrorCode code = error_code_from_string(word);
  if (code == ErrorCode::none)
    return fail(Error(ErrorKind::usage, "explain " + printable(options.what) + ": there is no such code")
                    .with_code(ErrorCode::option)
                    .with_hint(suggestion(word, code_names(), "codes")));
  context.streams.out << manual_section(code, kWidth);
  return 0;
}

}  // namespace

void add_explain(CLI::App& app, Actions& actions) {
  const auto [command, options] =
      add_command(app, actions, "explain", "Say what an error means, and what to do", explain);
  command.add_option("CODE", options.what, "The word in brackets at the end of the error; without it, all there are")
      ->type_name("");
}

}  // namespace situla::cli
