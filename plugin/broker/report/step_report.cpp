#include "plugin/broker/report/step_report.hpp"

#include <algorithm>

#include <syslog.h>
#include <unistd.h>

#include "common/base/json_members.hpp"
#include "common/protocol/contract.hpp"
#include "common/sys/identity.hpp"

namespace situla {
namespace {

constexpr std::chrono::seconds kKeepEvery{2};

uint64_t now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(since).count());
}

StepRecord record_of(const StepRequest& step) {
  StepRecord record;
  record.job = step.job_id;
  record.step = step.step_id;
  record.uid = step.uid;
  record.node = host_name();
  record.image = step.image;
  record.named = step.named;
  record.tasks = step.local_tasks;
  return record;
}

/// Under which name the log has it; empty: not at all.
std::string_view log_name(StepPhase phase) {
  if (phase == StepPhase::wait) return to_string(StepPhase::import);
  if (phase == StepPhase::hooks || phase == StepPhase::scripts) return to_string(StepPhase::prepare);
  return phase == StepPhase::mount || phase == StepPhase::tasks ? "" : to_string(phase);
}

}  // namespace

std::vector<StepRecord::Phase> parts_of_prepare(const StepRecord::Phase& whole, uint64_t hooks, uint64_t scripts) {
  const uint64_t length = whole.length.value_or(0);
  scripts = std::min(scripts, length);
  hooks = std::min(hooks, length - scripts);
  const uint64_t rest = length - hooks - scripts;
  std::vector<StepRecord::Phase> parts = {{whole.phase, whole.begin, rest}};
  if (hooks > 0) parts.push_back({StepPhase::hooks, whole.begin + rest, hooks});
  if (scripts > 0) parts.push_back({StepPhase::scripts, whole.begin + rest + hooks, scripts});
  return parts;
}

StepReport::StepReport(const StepRequest& step)
    : record_(record_of(step)), file_(kReportsDirectory, step.uid, step_record_name(step.job_id, step.step_id)) {}

void StepReport::begin(StepPhase phase) {
  end();
  // A container may be looked for, made and looked for again; what a user's process can repeat for ever has an end.
  if (record_.phases.size() == StepRecord::kMostPhases) return;
  record_.phases.push_back({phase, now(), std::nullopt});
  begun_ = Clock::now();
  goes_on_ = true;
}

void StepReport::end() {
  record_.waits_for.clear();
  if (!std::exchange(goes_on_, false)) return;
  const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begun_);
  record_.phases.back().length = static_cast<uint64_t>(time.count());
}

void StepReport::go_on(StepPhase phase) {
  if (!goes_on_ || record_.phases.back().phase != phase) begin(phase);
}

void StepReport::prepared(uint64_t hooks, uint64_t scripts) {
  end();
  if (record_.phases.empty() || record_.phases.back().phase != StepPhase::prepare) return;
  const StepRecord::Phase whole = record_.phases.back();
  record_.phases.pop_back();
  for (const StepRecord::Phase& part : parts_of_prepare(whole, hooks, scripts))
    if (record_.phases.size() < StepRecord::kMostPhases) record_.phases.push_back(part);
}

void StepReport::heard(const ImportNews& news) {
  const bool waits = goes_on_ && record_.phases.back().phase == StepPhase::wait;
  const auto* waiting = std::get_if<ImportWaits>(&news);
  if (waits != (waiting != nullptr)) {
    begin(waits ? StepPhase::import : StepPhase::wait);
    kept_ = {};
  } else if (!waits) {
    go_on(StepPhase::import);
  }
  if (waiting != nullptr) record_.waits_for = waiting->what;
  if (const auto* progress = std::get_if<ImportProgress>(&news))
    record_.progress = StepRecord::Progress{std::min(progress->done, StepRecord::kMostCount),
                                            std::min(progress->total, StepRecord::kMostCount), now()};
  has_news_ = true;
}

void StepReport::failed(const Error& error) {
  end();
  if (!record_.failure)
    record_.failure = StepRecord::Failure{std::string(to_string(error.code())), error.message(), error.hint()};
}

std::vector<std::pair<std::string_view, uint64_t>> StepReport::logged_phases() const {
  std::vector<std::pair<std::string_view, uint64_t>> logged;
  for (const StepRecord::Phase& phase : record_.phases) {
    const std::string_view name = log_name(phase.phase);
    if (name.empty() || !phase.length) continue;
    const auto known = std::find_if(logged.begin(), logged.end(), [&](const auto& each) { return each.first == name; });
    if (known == logged.end())
      logged.emplace_back(name, *phase.length);
    else
      known->second += *phase.length;
  }
  return logged;
}

std::string StepReport::text() const {
  if (root.empty()) return "";
  std::string line = (digest.empty() ? "" : "digest=" + digest + " ") + "source=" + source + " mount=" + root;
  for (const auto& [phase, milliseconds] : logged_phases())
    line += " " + std::string(phase) + "=" + std::to_string(milliseconds) + "ms";
  return line;
}

std::string StepReport::json() const {
  if (root.empty()) return "";
  JsonMembers members;
  members.add_number("job", record_.job);
  members.add_number("step", record_.step);
  members.add_number("uid", record_.uid);
  members.add_text("image", record_.image);
  members.add("named", record_.named ? "true" : "false");
  members.add_text("digest", digest);
  members.add_text("source", source);
  members.add_text("mount", root);
  if (bytes != 0) members.add_number("bytes", bytes);
  for (const auto& [phase, milliseconds] : logged_phases())
    members.add_number(std::string(phase) + "_ms", milliseconds);
  return members.object();
}

void StepReport::keep() {
  has_news_ = false;
  kept_ = Clock::now();
  if (cannot_keep_) return;
  record_.digest = digest;
  record_.source = source;
  record_.mount = root;
  record_.bytes = bytes;
  const auto written = file_.write(record_.json() + "\n");
  if (written) return;
  // Where it cannot be read it will not be later either.
  cannot_keep_ = written.error().kind() == ErrorKind::unsupported;
  syslog(LOG_DEBUG, "job %u step %u: keep a record for the user: %s", record_.job, record_.step,
         written.error().message().c_str());
}

void StepReport::keep_now_and_then() {
  if (has_news_ && Clock::now() - kept_ >= kKeepEvery) keep();
}

void StepReport::keep_at_end() {
  end();
  record_.ended = now();
  if (file_.written() || record_.failure || !record_.phases.empty()) keep();
  remove_old_records(kReportsDirectory);
}

}  // namespace situla
