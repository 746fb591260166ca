#include "hooks/cli/report/step_records.hpp"

#include <algorithm>
#include <chrono>
#include <tuple>
#include <utility>

#include <fcntl.h>

#include "common/base/text.hpp"
#include "common/spec/json.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"

namespace situla::report {
namespace {

Error malformed(std::string_view what) {
  return {ErrorKind::corrupt, "no record of a step: " + std::string(what)};
}

/// The members of one object, each of which has to be asked for.
class Members {
 public:
  Members(const Json& json, std::string_view name) : members_(json.as_object()), name_(name) {
    if (members_ == nullptr) complain("is no object");
  }

  void number(std::string_view name, uint64_t most, auto& to, bool needed = false) {
    const Json* value = take(name, needed);
    if (value == nullptr) return;
    const auto number = value->as_number();
    if (!number || *number > most) return complain(std::string(name) + " is no such number");
    to = static_cast<std::remove_reference_t<decltype(to)>>(*number);
  }
  void text(std::string_view name, std::string& to, bool lines = false) {
    const Json* value = take(name, false);
    if (value == nullptr) return;
    const std::string* text = value->as_text();
    const auto is_printable = [](std::string_view line) { return printable(line) == line; };
    if (text == nullptr || text->size() > 4 * StepRecord::kMostText) return complain(std::string(name) + " is no text");
    const std::vector<std::string_view> parts = lines ? split(*text, '\n') : std::vector<std::string_view>{*text};
    if (!std::all_of(parts.begin(), parts.end(), is_printable))
      return complain(std::string(name) + " has control characters");
    to = *text;
  }
  void truth(std::string_view name, bool& to) {
    const Json* value = take(name, false);
    if (value == nullptr) return;
    if (!value->as_truth()) return complain(std::string(name) + " is neither true nor false");
    to = *value->as_truth();
  }
  /// nullptr: there is none.
  const Json* take(std::string_view name, bool needed) {
    if (members_ == nullptr) return nullptr;
    const auto found =
        std::find_if(members_->begin(), members_->end(), [&](const auto& it) { return it.name == name; });
    if (found != members_->end()) {
      ++taken_;
      return &found->value;
    }
    if (needed) complain("it has no " + std::string(name));
    return nullptr;
  }
  void complain(std::string what) {
    if (!complaint_) complaint_ = malformed(std::string(name_) + std::move(what));
  }
  [[nodiscard]] Result<void> finish() const {
    if (complaint_) return fail(*complaint_);
    if (taken_ != members_->size()) return fail(malformed(std::string(name_) + "it has unknown members"));
    return {};
  }

 private:
  const Json::Members* members_;
  std::string_view name_;  ///< in front of complaints
  size_t taken_ = 0;
  std::optional<Error> complaint_;
};

Result<StepRecord::Phase> read_phase(const Json& json) {
  StepRecord::Phase phase;
  Members members(json, "a phase: ");
  std::string name;
  members.text("name", name);
  const auto* const known = std::find(kStepPhases.begin(), kStepPhases.end(), name);
  if (known == kStepPhases.end()) return fail(malformed("a phase of another name"));
  phase.phase = static_cast<StepPhase>(known - kStepPhases.begin());
  members.number("begin", kMostTime, phase.begin, true);
  uint64_t length = kMostTime + 1;
  members.number("ms", kMostTime, length);
  if (length <= kMostTime) phase.length = length;
  TRY(members.finish());
  return phase;
}

Result<StepRecord::Progress> read_progress(const Json& json) {
  StepRecord::Progress progress;
  Members members(json, "progress: ");
  members.number("done", StepRecord::kMostCount, progress.done, true);
  members.number("total", StepRecord::kMostCount, progress.total, true);
  members.number("at", kMostTime, progress.at, true);
  TRY(members.finish());
  return progress;
}

Result<StepRecord::Failure> read_failure(const Json& json) {
  StepRecord::Failure failure;
  Members members(json, "failure: ");
  members.text("code", failure.code);
  members.text("text", failure.text, true);
  members.text("hint", failure.hint, true);
  TRY(members.finish());
  return failure;
}

Result<std::vector<StepRecord::Phase>> read_phases(const Json& json) {
  const Json::List* items = json.as_list();
  if (items == nullptr || items->size() > StepRecord::kMostPhases) return fail(malformed("phases are no such list"));
  std::vector<StepRecord::Phase> phases;
  for (const Json& item : *items) {
    TRY_ASSIGN(const StepRecord::Phase phase, read_phase(item));
    // Only the last one can go on.
    if (!phases.empty() && !phases.back().length) return fail(malformed("several phases go on"));
    phases.push_back(phase);
  }
  return phases;
}

Result<StepRecord> read_record(const Json& json) {
  StepRecord record;
  Members members(json, "");
  uint32_t version = 0;
  members.number("record", UINT32_MAX, version, true);
  if (version != 0 && version != StepRecord::kVersion)
    return fail(ErrorKind::unsupported, "the record of a step is of another release");
  members.number("job", UINT32_MAX, record.job, true);
  members.number("step", UINT32_MAX, record.step, true);
  members.number("uid", UINT32_MAX, record.uid, true);
  members.text("node", record.node);
  members.text("image", record.image, true);
  members.truth("named", record.named);
  members.number("tasks", UINT32_MAX, record.tasks);
  members.text("digest", record.digest);
  members.text("source", record.source);
  members.text("mount", record.mount);
  members.number("bytes", StepRecord::kMostCount, record.bytes);
  members.text("waits_for", record.waits_for);
  uint64_t ended = kMostTime + 1;
  members.number("ended", kMostTime, ended);
  if (ended <= kMostTime) record.ended = ended;
  members.truth("lost", record.lost);
  if (const Json* phases = members.take("phases", true)) {
    TRY_ASSIGN(record.phases, read_phases(*phases));
  }
  if (const Json* progress = members.take("progress", false)) {
    TRY_ASSIGN(record.progress, read_progress(*progress));
  }
  if (const Json* failure = members.take("failure", false)) {
    TRY_ASSIGN(record.failure, read_failure(*failure));
  }
  TRY(members.finish());
  return record;
}

/// One that is written is locked: its broker lives.
Result<StepRecord> read_record_file(const std::string& path) {
  TRY_ASSIGN(UniqueFd file, open_file(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK));
  TRY_ASSIGN(const std::string text, read_all(file.get(), 2 * StepRecord::kMostBytes));
  TRY_ASSIGN(StepRecord record, parse_step_record(text));
  const bool written = !FileLock::acquire(std::move(file), FileLock::Kind::shared, std::chrono::milliseconds(0), path);
  record.lost = !record.ended && !written;
  return record;
}

}  // namespace

Result<StepRecord> parse_step_record(std::string_view line) {
  if (line.size() > 2 * StepRecord::kMostBytes) return fail(malformed("too long"));
  TRY_ASSIGN(const Json json, parse_json(line));
  return read_record(json);
}

Result<std::vector<StepRecord>> parse_step_records(std::string_view text) {
  std::vector<StepRecord> records;
  size_t number = 0;
  for (const std::string_view line : split(text, '\n')) {
    ++number;
    if (trim(line).empty()) continue;
    if (records.size() == kMostRecords)
      return fail(malformed("more than " + std::to_string(kMostRecords) + " in one file"));
    auto record = parse_step_record(line);
    if (!record) return fail(std::move(record).error().with_context("line " + std::to_string(number)));
    records.push_back(std::move(*record));
  }
  return records;
}

std::vector<StepRecord> read_step_records(const std::string& directory, std::optional<uid_t> user, LogSink& log) {
  const std::vector<std::string> users = user ? std::vector<std::string>{std::to_string(*user)}
                                              : list_directory(directory).value_or(std::vector<std::string>());
  std::vector<StepRecord> records;
  for (const std::string& each : users) {
    const std::string path = directory + "/" + each;
    for (const std::string& name : list_directory(path).value_or(std::vector<std::string>())) {
      if (name.starts_with('.')) continue;
      auto record = read_record_file(path + "/" + name);
      // It may have gone since.
      if (record)
        records.push_back(std::move(*record));
      else if (record.error().errnum() != ENOENT)
        log.warning(path + "/" + printable(name) + ": " + record.error().message());
    }
  }
  sort_records(records);
  return records;
}

void sort_records(std::vector<StepRecord>& records) {
  const auto who = [](const StepRecord& it) { return std::tie(it.job, it.step, it.node); };
  std::stable_sort(records.begin(), records.end(), [&](const auto& a, const auto& b) { return who(a) < who(b); });
  const auto end =
      std::unique(records.begin(), records.end(), [&](const auto& a, const auto& b) { return who(a) == who(b); });
  records.erase(end, records.end());
  std::stable_sort(records.begin(), records.end(),
                   [](const auto& a, const auto& b) { return begin_of(a) < begin_of(b); });
}

uint64_t begin_of(const StepRecord& record) {
  return record.phases.empty() ? record.ended.value_or(0) : record.phases.front().begin;
}

uint64_t end_of(const StepRecord& record, uint64_t now) {
  if (record.ended) return *record.ended;
  if (!record.lost) return now;
  uint64_t end = record.progress ? record.progress->at : 0;
  for (const StepRecord::Phase& phase : record.phases) end = std::max(end, phase.begin + phase.length.value_or(0));
  return end;
}

uint64_t length_of(const StepRecord& record, const StepRecord::Phase& phase, uint64_t now) {
  if (phase.length) return *phase.length;
  const uint64_t end = end_of(record, now);
  return end > phase.begin ? end - phase.begin : 0;
}

bool is_over(const StepRecord& record) {
  return record.ended || record.lost || record.failure;
}

std::string_view state_of(const StepRecord& record) {
  if (record.failure) return "failed";
  if (record.lost) return "lost";
  if (record.ended) return "ended";
  if (record.phases.empty() || record.phases.back().length) return "between";
  switch (record.phases.back().phase) {
    case StepPhase::import:
      return "importing";
    case StepPhase::wait:
      return "waiting";
    case StepPhase::mount:
    case StepPhase::prepare:
    case StepPhase::hooks:
    case StepPhase::scripts:
      return "preparing";
    case StepPhase::tasks:
      return "running";
    case StepPhase::save:
      return "saving";
  }
  return "between";
}

}  // namespace situla::report
