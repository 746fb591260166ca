// explain: what an error's code means, and what to do about it; or what happened to a job's steps on this node.
#include <ostream>
#include <vector>

#include "common/base/error_code.hpp"
#include "common/base/text.hpp"
#include "hooks/cli/commands.hpp"
#include "hooks/cli/report/explain_job.hpp"
#include "hooks/cli/report/manual.hpp"

namespace situla::cli {
namespace {

struct ExplainOptions {
  std::string what;
  ExplainJob job;
};

bool is_number(std::string_view word) {
  return !word.empty() && word.front() >= '0' && word.front() <= '9';
}

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
  // No code begins with a digit.
  if (is_number(options.what)) return explain_job(context, options.what, options.job);
  if (options.job.json || !options.job.svg.empty() || !options.job.records.empty())
    return fail(Error(ErrorKind::usage, "explain: --json, --svg and --records are for the steps of a job")
                    .with_code(ErrorCode::option)
                    .with_hint("situla explain [OPTIONS] JOB"));
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
  context.streams.out << manual_section(code, kManualWidth);
  return 0;
}

}  // namespace

void add_explain(Program& program, Actions& actions) {
  const auto [command, options] =
      add_command(program, actions, "explain", "Say what an error means, and what to do", explain);
  command
      .option("WORD", options.what,
              "CODE: the word in brackets at the end of the error; or the number of a JOB or step whose steps had "
              "containers on this node; without it, all codes")
      .value("");
  const Option json = command.flag("--json", options.job.json, "Print a job's records, one JSON object in each line");
  command.option("--svg", options.job.svg, "Draw a job's steps as a line of time into this file; -: standard output")
      .value("FILE")
      .excludes(json);
  command
      .option("--records", options.job.records,
              "Take the records of other nodes, too: what --json printed there; several times; -: standard input")
      .value("FILE")
      .one_at_a_time();
}

}  // namespace situla::cli
