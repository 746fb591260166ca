#include "hooks/cli/report/step_records.hpp"

#include <cstdlib>
#include <string>

#include "hooks/cli/report/record_text.hpp"
#include "hooks/cli/report/timeline.hpp"
#include "tests/fuzz/target.hpp"

/// Records of steps as another node, or a file, may bring them: read, written again, told and drawn.
void situla::fuzz(std::string_view bytes) {
  auto records = report::parse_step_records(bytes);
  if (!records) return;
  constexpr uint64_t kNow = 1'764'000'000'000;
  for (const StepRecord& record : *records) {
    const std::string json = record.json();
    const auto again = report::parse_step_record(json);
    if (!again || again->json() != json) std::abort();
    if (report::describe(record, kNow).find('\033') != std::string::npos) std::abort();
  }
  report::sort_records(*records);
  (void)report::status_table(*records, kNow, [](uid_t uid) { return std::to_string(uid); });
  const std::string svg = report::draw_timeline(*records, "job", kNow);
  if (!svg.ends_with("</svg>\n") || svg.find('\033') != std::string::npos) std::abort();
}
