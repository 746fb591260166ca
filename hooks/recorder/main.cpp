// situla-recorder: started by situla-broker, without any capability (hooks/recorder/README.md):
// `situla-recorder comment|admin_comment JOB WORD SQUEUE SCONTROL [SLURM_CONF]`, with no descriptor but three of
// /dev/null.
#include <algorithm>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include <syslog.h>

#include "common/base/text.hpp"
#include "common/spec/job_record.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/process/run_program.hpp"

namespace situla {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAnswers{10000};  // of one of Slurm's programs
constexpr milliseconds kSettle{300};     // after which what another has read before is written
constexpr int kAttempts = 8;
// Of squeue's columns, in bytes: it fills them up, whatever they hold, and ends them with a line feed.
constexpr size_t kIdWidth = 16, kNumberWidth = 32, kCommentWidth = kMostJobComment + 1;
constexpr size_t kRowBytes = kIdWidth + kNumberWidth + kCommentWidth + 1;
constexpr size_t kMostOutput = size_t{16} << 20U;  // an array may have a row for each task
constexpr size_t kMostErrors = 1024;

struct Arguments {
  bool by_admin = false;
  std::string job, word, squeue, scontrol, slurm_conf;
};

Result<Arguments> parse_arguments(const std::vector<std::string>& words) {
  const bool known = words.size() >= 6 && words.size() <= 7 && (words[1] == "comment" || words[1] == "admin_comment");
  if (!known || !parse_unsigned(words[2]) || !is_job_record_word(words[3]) || !words[4].starts_with('/') ||
      !words[5].starts_with('/'))
    return fail(ErrorKind::usage, "recorder: comment|admin_comment JOB WORD SQUEUE SCONTROL [SLURM_CONF]");
  return Arguments{words[1] == "admin_comment",     words[2], words[3], words[4], words[5],
                   words.size() > 6 ? words[6] : ""};
}

/// What it prints. It ends with this process, however that ends.
Result<std::string> run_slurm(const Arguments& arguments, const std::string& program, std::vector<std::string> words) {
  TRY(check_program_of_root(program));
  const std::string name = program.substr(program.rfind('/') + 1);
  SpawnOptions options;
  options.program = program;
  options.arguments = std::move(words);
  options.arguments.insert(options.arguments.begin(), name);
  options.environment = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"};
  if (!arguments.slurm_conf.empty()) options.environment.push_back("SLURM_CONF=" + arguments.slurm_conf);
  options.no_new_privileges = true;
  RunLimits limits;
  limits.time = kAnswers;
  limits.output_bytes = kMostOutput;
  limits.error_bytes = kMostErrors;
  TRY_ASSIGN(ProgramRun run, run_program(std::move(options), limits));
  if (run.success()) return std::move(run.output);
  if (run.end == ProgramRun::End::too_late)
    return fail(ErrorKind::failure, name + " gives no answer in " + std::to_string(kAnswers.count() / 1000) + " s");
  const std::string_view said = trim(run.errors);
  return fail(ErrorKind::failure, name + (!said.empty() ? ": " + excerpt(said)
                                          : run.status  ? " " + run.status->text()
                                                        : " does not end"));
}

struct JobState {
  std::string number;   ///< for scontrol: another than the job's id in arrays and heterogeneous jobs
  std::string comment;  ///< without blanks at its end
};

std::string_view without_end(std::string_view text) {
  return text.substr(0, text.find_last_not_of(" \n") + 1);
}

/// The columns are taken by their width: a comment may hold anything.
Result<JobState> read_job(const Arguments& arguments) {
  const auto column = [](const std::string& name, size_t width) { return name + ":" + std::to_string(width); };
  TRY_ASSIGN(const std::string rows,
             run_slurm(arguments, arguments.squeue,
                       {"--noheader", "--jobs=" + arguments.job,
                        "--Format=" + column("JobID", kIdWidth) + "," + column("JobArrayID", kNumberWidth) + "," +
                            column(arguments.by_admin ? "admin_comment" : "Comment", kCommentWidth)}));
  for (std::string_view left = rows; left.size() > kIdWidth + kNumberWidth;
       left.remove_prefix(std::min(kRowBytes, left.size()))) {
    if (without_end(left.substr(0, kIdWidth)) != arguments.job) continue;
    const std::string_view number = without_end(left.substr(kIdWidth, kNumberWidth));
    if (!is_job_number(number)) continue;
    const std::string_view comment = without_end(left.substr(kIdWidth + kNumberWidth, kCommentWidth));
    return JobState{std::string(number), comment == "(null)" ? "" : std::string(comment)};
  }
  return fail(ErrorKind::not_found, "squeue does not list the job");
}

Result<void> write_comment(const Arguments& arguments, const std::string& number, const std::string& comment) {
  TRY(run_slurm(arguments, arguments.scontrol,
                {"update", "JobId=" + number, (arguments.by_admin ? "AdminComment=" : "Comment=") + comment}));
  return {};
}

/// Slurm takes whole comments alone. What another step has read before this one wrote it writes after it.
Result<void> record(const Arguments& arguments) {
  std::random_device random;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    TRY_ASSIGN(const JobState job, read_job(arguments));
    if (says_image(job.comment, arguments.word)) return {};
    TRY_ASSIGN(const std::string comment, add_image(job.comment, arguments.word));
    TRY(write_comment(arguments, job.number, comment));
    std::this_thread::sleep_for(kSettle + milliseconds(random() % static_cast<unsigned>(kSettle.count())));
  }
  TRY_ASSIGN(const JobState job, read_job(arguments));
  return says_image(job.comment, arguments.word) ? Result<void>()
                                                 : fail(ErrorKind::failure, "others write over what is written");
}

int run(const std::vector<std::string>& words) {
  openlog("situla-recorder", LOG_PID, LOG_DAEMON);
  const auto arguments = parse_arguments(words);
  const auto recorded = arguments ? record(*arguments) : fail(arguments.error());
  if (recorded) return 0;
  syslog(LOG_WARNING, "job %s: its image is not in its %s: %s", arguments ? arguments->job.c_str() : "?",
         arguments && arguments->by_admin ? "AdminComment" : "Comment", printable(recorded.error().message()).c_str());
  return 1;
}

}  // namespace
}  // namespace situla

int main(int argc, char** argv) {
  situla::take_program_name();
  return situla::run({argv, argv + argc});
}
