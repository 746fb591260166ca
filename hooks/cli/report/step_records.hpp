// Which records of steps are there, and what do they say? Written by the broker; those of other nodes come as a user
// gives them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/protocol/step_record.hpp"

namespace situla::report {

constexpr size_t kMostRecords = 10'000;               ///< of one file
constexpr size_t kMostFileBytes = size_t{64} << 20U;  ///< likewise
constexpr uint64_t kMostTime = 100'000'000'000'000;   ///< milliseconds since the epoch; the year 5138

/// One, as StepRecord::json() writes it: nothing else may stand there. ErrorKind::unsupported for one of another
/// release.
Result<StepRecord> parse_step_record(std::string_view line);
/// One in each line. The error says which line.
Result<std::vector<StepRecord>> parse_step_records(std::string_view text);

/// Those in a directory of the broker's (RecordFile) that this user, or anybody, may have; what cannot be read is left
/// out, and the log says so. StepRecord::lost is found out here.
std::vector<StepRecord> read_step_records(const std::string& directory, std::optional<uid_t> user, LogSink& log);

/// By their time, then by their node; of one step of one node the first stays.
void sort_records(std::vector<StepRecord>& records);

/// When it began; 0: it never did.
uint64_t begin_of(const StepRecord& record);
/// Until which time something is known of it.
uint64_t end_of(const StepRecord& record, uint64_t now);
/// Of a phase; one that goes on lasts until end_of().
uint64_t length_of(const StepRecord& record, const StepRecord::Phase& phase, uint64_t now);
/// Nothing will follow.
bool is_over(const StepRecord& record);
/// "importing", "running", "ended", "failed", ...
std::string_view state_of(const StepRecord& record);

}  // namespace situla::report
