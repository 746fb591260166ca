// How are records of steps told in words? For `situla explain` and `situla status`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "common/protocol/step_record.hpp"

namespace situla::report {

/// "12.0 node1", "12.batch node1"
std::string name_of(const StepRecord& record);
/// Of milliseconds: "12 ms", "1.204 s", "2:03", "1:02:03".
std::string seconds_text(uint64_t milliseconds);
/// Of milliseconds, whole seconds: "0:12", "1:02:03".
std::string clock_text(uint64_t milliseconds);
/// "2026-11-25 20:01:02.123", as this machine's clock shows it.
std::string time_text(uint64_t milliseconds);

/// What happened to a step: several lines. now: milliseconds since the epoch.
std::string describe(const StepRecord& record, uint64_t now);

/// A table of what goes on, but for tasks that run: what is imported, waited for, prepared and saved. Empty: nothing
/// is. user_name: of a uid.
std::string status_table(const std::vector<StepRecord>& records, uint64_t now,
                         const std::function<std::string(uid_t)>& user_name);
/// Whether it stands there.
bool is_at_work(const StepRecord& record);

}  // namespace situla::report
