#include "plugin/broker/recorder.hpp"

#include <syslog.h>

#include "common/spec/job_record.hpp"
#include "plugin/broker/events/heard.hpp"
#include "plugin/broker/operation.hpp"

namespace situla {
namespace {

constexpr std::chrono::seconds kLimit{30};

/// A container that ran already, or lay on disk, has an image of which nothing is known here.
bool is_known(const std::string& source) {
  return !source.empty() && source != "running" && source != "container";
}

Result<Launch> make_launch(const Step& step, const StepReport& report) {
  const bool by_admin = step.config.job_comment == JobComment::admin_comment;
  const NodeCgroups& cgroups = step.launcher.cgroups;
  TRY_ASSIGN(CgroupPlace place, by_admin ? Result<CgroupPlace>(cgroups.broker()) : cgroups.step());
  Launch recorder{Program::recorder,
                  {std::string(to_string(step.config.job_comment)), std::to_string(step.request.job_id),
                   job_record_word({step.request.image, report.digest, report.bytes, report.source}),
                   step.slurm_program("squeue"), step.slurm_program("scontrol")},
                  std::move(place),
                  by_admin ? Identity{} : step.user,
                  Rights::service};
  if (!step.request.slurm_conf.empty()) recorder.arguments.push_back(step.request.slurm_conf);
  return recorder;
}

}  // namespace

void Recorder::start(const Step& step, const StepReport& report) {
  if (step.config.job_comment == JobComment::off || step.request.node != 0 || step.request.image.empty() ||
      !is_known(report.source))
    return;
  const auto launch = make_launch(step, report);
  auto started = launch ? step.launcher.launch(*launch) : fail(launch.error());
  if (!started)
    return syslog(LOG_WARNING, "job %u step %u: %s: %s", step.request.job_id, step.request.step_id,
                  phrase(RootOperation::record_image).data(), as_one_line(started.error().message()).c_str());
  process_ = std::move(*started);
  deadline_ = std::chrono::steady_clock::now() + kLimit;
}

std::optional<std::chrono::steady_clock::time_point> Recorder::deadline() const {
  return process_ ? std::optional(deadline_) : std::nullopt;
}

void Recorder::check() {
  if (!process_) return;
  // Also when somebody else has taken its end (an error): a descriptor that stays ready would keep this one busy.
  const auto ended = process_.wait_for(std::chrono::milliseconds(0));
  if (!ended || *ended || std::chrono::steady_clock::now() >= deadline_) process_ = Child();
}

void Recorder::end(const std::string& step) {
  check();
  if (!process_) return;
  process_ = Child();
  syslog(LOG_INFO, "%s: ended before its image was in the job's record", step.c_str());
}

}  // namespace situla
