#include "hooks/cli/report/record_text.hpp"

#include <algorithm>
#include <array>
#include <ctime>

#include "common/base/text.hpp"
#include "hooks/cli/report/step_records.hpp"

namespace situla::report {
namespace {

constexpr uint64_t kSecond = 1000, kMinute = 60 * kSecond, kHour = 60 * kMinute;

std::string with_zeros(uint64_t number, size_t width) {
  const std::string digits = std::to_string(number);
  return std::string(width - std::min(width, digits.size()), '0') + digits;
}

/// Rows in columns; the last one is not filled up. right: those whose text stands at the right.
std::string table(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& right,
                  const std::string& before) {
  std::vector<size_t> widths(right.size());
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const auto& row : rows) {
    std::string line = before;
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) line += "  ";
      const bool last = i + 1 == row.size();
      line += right[i] ? flush_right(row[i], widths[i]) : last ? row[i] : flush_left(row[i], widths[i]);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string phases_table(const StepRecord& record, uint64_t now) {
  std::vector<std::vector<std::string>> rows = {{"phase", "begin", "time", ""}};
  for (const StepRecord::Phase& phase : record.phases) {
    const std::string open = phase.length ? "" : record.lost ? "not known when it ended" : "goes on";
    rows.push_back({std::string(to_string(phase.phase)), time_text(phase.begin),
                    seconds_text(length_of(record, phase, now)), open});
  }
  return table(rows, {false, false, true, false}, "  ");
}

std::string indented(const std::string& first, std::string_view text) {
  std::string lines;
  for (const std::string_view line : split(text, '\n'))
    lines += (lines.empty() ? "  " + first : "  ") + std::string(line) + "\n";
  return lines;
}

/// "120.0 MiB of 628.1 MiB (19 %)"; without a number of all of them, those that are there.
std::string progress_text(const StepRecord::Progress& progress) {
  std::string done = format_size(progress.done);
  if (progress.total == 0) return done;
  const uint64_t percent = std::min<uint64_t>(progress.done * 100 / progress.total, 100);
  return done + " of " + format_size(progress.total) + " (" + std::to_string(percent) + " %)";
}

/// Since the phase began, in which bytes come.
std::string rate_text(const StepRecord& record) {
  const auto& progress = record.progress;
  const uint64_t begin = record.phases.back().begin;
  if (!progress || progress->at <= begin || progress->done == 0) return "";
  const double rate = static_cast<double>(progress->done) / static_cast<double>(progress->at - begin) * kSecond;
  return format_size(static_cast<uint64_t>(rate)) + "/s";
}

std::string what_goes_on(const StepRecord& record) {
  if (!record.waits_for.empty()) return "for " + record.waits_for;
  return record.phases.back().phase == StepPhase::import && record.progress ? progress_text(*record.progress) : "";
}

}  // namespace

std::string name_of(const StepRecord& record) {
  return step_record_name(record.job, record.step) + (record.node.empty() ? "" : " " + record.node);
}

std::string seconds_text(uint64_t milliseconds) {
  if (milliseconds < kSecond) return std::to_string(milliseconds) + " ms";
  if (milliseconds >= kMinute) return clock_text(milliseconds);
  return std::to_string(milliseconds / kSecond) + "." + with_zeros(milliseconds % kSecond, 3) + " s";
}

std::string clock_text(uint64_t milliseconds) {
  const std::string seconds = ":" + with_zeros(milliseconds / kSecond % 60, 2);
  if (milliseconds < kHour) return std::to_string(milliseconds / kMinute) + seconds;
  return std::to_string(milliseconds / kHour) + ":" + with_zeros(milliseconds / kMinute % 60, 2) + seconds;
}

std::string time_text(uint64_t milliseconds) {
  const auto seconds = static_cast<std::time_t>(milliseconds / kSecond);
  std::tm broken_down{};
  std::array<char, 64> text{};
  if (localtime_r(&seconds, &broken_down) == nullptr) return "?";
  const size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &broken_down);
  return std::string(text.data(), length) + "." + with_zeros(milliseconds % kSecond, 3);
}

std::string describe(const StepRecord& record, uint64_t now) {
  std::string text = "step " + step_record_name(record.job, record.step) +
                     (record.node.empty() ? "" : " on " + record.node) + ": " + std::string(state_of(record)) +
                     (record.failure ? " [" + record.failure->code + "]" : "") + "\n";
  const auto add = [&](std::string_view name, std::string_view value) {
    if (!value.empty()) text += indented(flush_left(name, 10), value);
  };
  add("image", record.image);
  add("digest", record.digest);
  add("source", record.source);
  add("mount", record.mount);
  add("size", record.bytes == 0 ? "" : format_size(record.bytes));
  add("import", record.progress && !is_over(record) ? progress_text(*record.progress) : "");
  add("waits for", record.waits_for);
  if (!record.phases.empty()) text += phases_table(record, now);
  if (!record.failure) return text;
  text += indented("[ERROR] ", record.failure->text + " [" + record.failure->code + "]");
  if (!record.failure->hint.empty()) text += indented("hint: ", record.failure->hint);
  return text;
}

bool is_at_work(const StepRecord& record) {
  if (is_over(record) || record.phases.empty()) return false;
  const StepRecord::Phase& last = record.phases.back();
  return !last.length && last.phase != StepPhase::tasks;
}

std::string status_table(const std::vector<StepRecord>& records, uint64_t now,
                         const std::function<std::string(uid_t)>& user_name) {
  std::vector<std::vector<std::string>> rows = {{"STEP", "USER", "STATE", "SINCE", "RATE", "IMAGE", "PROGRESS"}};
  for (const StepRecord& record : records) {
    if (!is_at_work(record)) continue;
    const StepRecord::Phase& phase = record.phases.back();
    rows.push_back({step_record_name(record.job, record.step), user_name(record.uid), std::string(state_of(record)),
                    clock_text(length_of(record, phase, now)),
                    phase.phase == StepPhase::import ? rate_text(record) : "",
                    record.image.empty() ? "-" : record.image, what_goes_on(record)});
  }
  return rows.size() == 1 ? "" : table(rows, {false, false, false, true, true, false, false}, "");
}

}  // namespace situla::report
