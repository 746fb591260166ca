// How do a job's steps look on a line of time? A picture (SVG) of records, of one node or of several.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/protocol/step_record.hpp"

namespace situla::report {

constexpr size_t kMostRows = 400;  ///< then a line says how many more there are

/// records: sort_records(). `title` is text. now: milliseconds since the epoch. Well-formed XML whatever they say;
/// readable on white and on black.
std::string draw_timeline(const std::vector<StepRecord>& records, std::string_view title, uint64_t now);

/// For XML, in elements and in attributes.
std::string xml_text(std::string_view text);

}  // namespace situla::report
