#include "hooks/cli/report/explain_job.hpp"

#include <algorithm>
#include <chrono>
#include <istream>
#include <iterator>
#include <optional>
#include <ostream>
#include <set>

#include <unistd.h>

#include "common/base/text.hpp"
#include "common/protocol/contract.hpp"
#include "common/spec/step_name.hpp"
#include "common/sys/file.hpp"
#include "hooks/cli/report/manual.hpp"
#include "hooks/cli/report/record_text.hpp"
#include "hooks/cli/report/step_records.hpp"
#include "hooks/cli/report/timeline.hpp"
#include "hooks/doctor/ask.hpp"
#include "hooks/doctor/checks.hpp"

namespace situla::cli {
namespace {

constexpr std::string_view kHowLong =
    "records are kept on the node where the step ran, for a day, and of a user the latest 64";

struct WantedSteps {
  uint32_t job = 0;
  std::optional<uint32_t> step;  ///< none: all
};

Result<WantedSteps> parse_wanted(const std::string& text) {
  if (const auto step = parse_step_name(text)) return WantedSteps{step->job, step->step};
  const auto parts = cut(text, '.');
  const auto job = parse_unsigned(parts ? parts->first : std::string_view(text));
  if (job && *job <= UINT32_MAX && (!parts || parts->second == "prolog"))
    return WantedSteps{static_cast<uint32_t>(*job), parts ? std::optional(kPrologStep) : std::nullopt};
  return fail(Error(ErrorKind::usage, "explain " + printable(text) + ": not the number of a job or a step")
                  .with_code(ErrorCode::option)
                  .with_hint("write 123 for all its steps, 123.0 or 123.batch for one"));
}

uint64_t milliseconds_now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(since).count());
}

Result<std::string> read_given(const Context& context, const std::string& file) {
  if (file != "-") return read_file(file, report::kMostFileBytes);
  std::string text;
  char c = 0;
  while (text.size() <= report::kMostFileBytes && context.streams.in.get(c)) text += c;
  if (text.size() > report::kMostFileBytes) return fail(ErrorKind::corrupt, "standard input: too long");
  return text;
}

Result<std::vector<StepRecord>> collect_records(const Context& context, const WantedSteps& wanted,
                                                const ExplainJob& options) {
  const auto user = geteuid() == 0 ? std::nullopt : std::optional(geteuid());
  std::vector<StepRecord> records = report::read_step_records(kReportsDirectory, user, context.log);
  for (const std::string& file : options.records) {
    TRY_ASSIGN(const std::string text, read_given(context, file));
    auto more = report::parse_step_records(text);
    if (!more)
      return fail(std::move(more)
                      .error()
                      .with_context(printable(file))
                      .with_code(ErrorCode::wrong_input)
                      .with_hint("it takes what `situla explain --json` prints on other nodes"));
    records.insert(records.end(), more->begin(), more->end());
  }
  std::erase_if(records, [&](const StepRecord& record) {
    return record.job != wanted.job || (wanted.step && record.step != *wanted.step);
  });
  report::sort_records(records);
  return records;
}

/// What Slurm still knows of a job.
struct JobPlace {
  bool runs = false;
  std::string count, nodes;
};

/// Lines "STATE|COUNT|NODES" of squeue, of each part of the job one.
std::optional<JobPlace> parse_place(std::string_view text) {
  constexpr std::string_view kNodes = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-,[]";
  for (const std::string_view line : split_nonempty(text, '\n')) {
    const std::vector<std::string_view> fields = split(trim(line), '|');
    if (fields.size() != 3 || fields[2].empty() || fields[2].find_first_not_of(kNodes) != std::string_view::npos)
      continue;
    if (!parse_unsigned(fields[1])) continue;
    return JobPlace{fields[0] == "RUNNING" || fields[0] == "SUSPENDED", std::string(fields[1]), std::string(fields[2])};
  }
  return std::nullopt;
}

std::optional<JobPlace> find_job(const Environment& environment, uint32_t job) {
  const auto squeue = doctor::find_program("squeue", environment);
  if (!squeue) return std::nullopt;
  const auto said =
      doctor::ask({*squeue, {"-h", "-t", "all", "-j", std::to_string(job), "-o", "%T|%D|%N"}}, environment.strings());
  return said ? parse_place(*said) : std::nullopt;
}

std::string line_for(const JobPlace& place, const std::string& job) {
  const std::string nodes = "-N" + place.count + " -n" + place.count + " situla explain " + job;
  const std::string number = job.substr(0, job.find('.'));
  return place.runs ? "srun --jobid=" + number + " --overlap " + nodes
                    : "srun -w " + shell_quote(place.nodes) + " " + nodes;
}

Error nothing_known(const Context& context, const WantedSteps& wanted, const std::string& job) {
  const std::string said = "explain " + job + ": this node has no record of it";
  if (const auto place = find_job(context.invocation.environment, wanted.job))
    return Error(ErrorKind::not_found, said + "; the job " + (place->runs ? "runs" : "ran") + " on " + place->nodes)
        .with_code(ErrorCode::not_found)
        .with_hint(line_for(*place, job));
  return Error(ErrorKind::not_found, said)
      .with_code(ErrorCode::not_found)
      .with_hint(std::string(kHowLong) + "; `sacct -X -o nodelist -j " + std::to_string(wanted.job) + "` says where");
}

std::string title_of(const std::vector<StepRecord>& records, uint32_t job) {
  std::set<std::string> images;
  for (const StepRecord& record : records)
    if (!record.image.empty()) images.insert(record.image);
  std::string title = "job " + std::to_string(job);
  if (!images.empty()) title += ": " + *images.begin();
  return title + (images.size() > 1 ? " and " + std::to_string(images.size() - 1) + " more" : "");
}

void print_records(const Context& context, const std::vector<StepRecord>& records) {
  std::ostream& out = context.streams.out;
  std::vector<std::string> codes;
  for (const StepRecord& record : records) {
    out << (&record == records.data() ? "" : "\n") << report::describe(record, milliseconds_now());
    if (record.failure) add_once(codes, record.failure->code);
  }
  for (const std::string& code : codes) {
    const std::string section = manual_section(error_code_from_string(code), kManualWidth);
    if (!section.empty()) out << "\n[" << code << "]\n" << section;
  }
}

}  // namespace

Result<int> explain_job(const Context& context, const std::string& job, const ExplainJob& options) {
  TRY_ASSIGN(const WantedSteps wanted, parse_wanted(job));
  TRY_ASSIGN(const std::vector<StepRecord> records, collect_records(context, wanted, options));
  if (records.empty()) return fail(nothing_known(context, wanted, job));
  if (!options.svg.empty()) {
    const std::string picture = report::draw_timeline(records, title_of(records, wanted.job), milliseconds_now());
    if (options.svg != "-")
      TRY(write_file_atomically(options.svg, picture, 0644, Sync::no));
    else
      context.streams.out << picture;
  } else if (options.json) {
    for (const StepRecord& record : records) context.streams.out << record.json() << '\n';
  } else {
    print_records(context, records);
  }
  return 0;
}

}  // namespace situla::cli
