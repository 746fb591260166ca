#include "common/protocol/step_record.hpp"

#include "common/base/json_members.hpp"
#include "common/spec/step_name.hpp"

namespace situla {
namespace {

std::string list_of(const std::vector<StepRecord::Phase>& phases) {
  JsonMembers list;
  for (const StepRecord::Phase& phase : phases) {
    JsonMembers members;
    members.add_text("name", to_string(phase.phase));
    members.add_number("begin", phase.begin);
    if (phase.length) members.add_number("ms", *phase.length);
    list.put(members.object());
  }
  return list.list();
}

std::string text_of(const StepRecord& record, size_t most_text) {
  JsonMembers members;
  const auto add = [&](JsonMembers& to, std::string_view name, std::string_view text) {
    to.add_lines(name, first_bytes(text, most_text));
  };
  members.add_number("record", StepRecord::kVersion);
  members.add_number("job", record.job);
  members.add_number("step", record.step);
  members.add_number("uid", record.uid);
  add(members, "node", record.node);
  add(members, "image", record.image);
  members.add("named", record.named ? "true" : "false");
  members.add_number("tasks", record.tasks);
  add(members, "digest", record.digest);
  add(members, "source", record.source);
  add(members, "mount", record.mount);
  if (record.bytes != 0) members.add_number("bytes", record.bytes);
  members.add("phases", list_of(record.phases));
  if (record.progress) {
    JsonMembers progress;
    progress.add_number("done", record.progress->done);
    progress.add_number("total", record.progress->total);
    progress.add_number("at", record.progress->at);
    members.add("progress", progress.object());
  }
  add(members, "waits_for", record.waits_for);
  if (record.failure) {
    JsonMembers failure;
    add(failure, "code", record.failure->code);
    add(failure, "text", record.failure->text);
    add(failure, "hint", record.failure->hint);
    members.add("failure", failure.object());
  }
  if (record.ended) members.add_number("ended", *record.ended);
  if (record.lost) members.add("lost", "true");
  return members.object();
}

}  // namespace

std::string StepRecord::json() const {
  std::string text = text_of(*this, kMostText);
  // Characters that are shown as \xNN, or quoted.
  for (size_t most = kMostText; text.size() > kMostBytes && most > 1;) text = text_of(*this, most /= 2);
  return text;
}

std::string_view first_bytes(std::string_view text, size_t most) {
  if (text.size() <= most) return text;
  size_t end = most;
  while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xc0U) == 0x80U) --end;
  return text.substr(0, end);
}

std::string step_record_name(uint32_t job, uint32_t step) {
  const std::string number = std::to_string(job) + ".";
  if (step == kBatchStep) return number + "batch";
  if (step == kInteractiveStep) return number + "interactive";
  if (step == kPrologStep) return number + "prolog";
  return number + std::to_string(step);
}

}  // namespace situla
