// What did a step's container cost, where did its image come from, and what went wrong? For the node's log in one line,
// and for the step's user in a file.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/error.hpp"
#include "common/protocol/messages.hpp"
#include "common/protocol/step_record.hpp"
#include "plugin/broker/report/record_file.hpp"

namespace situla {

/// What an import says of itself while it goes on.
using ImportNews = std::variant<ImportBegins, ImportWaits, ImportProgress>;

/// Hooks and start scripts run within the making of a container: as if they came after it. Milliseconds; more than it
/// took in all is not believed.
std::vector<StepRecord::Phase> parts_of_prepare(const StepRecord::Phase& whole, uint64_t hooks, uint64_t scripts);

class StepReport {
 public:
  explicit StepReport(const StepRequest& step);

  std::string digest, source, root;
  uint64_t bytes = 0;  ///< of the image's file; 0: it was not the broker's to open

  /// Phases do not overlap. Ends the one before.
  void begin(StepPhase phase);
  void end();
  /// Begins it, unless it goes on.
  void go_on(StepPhase phase);
  /// The end of StepPhase::prepare. As of parts_of_prepare().
  void prepared(uint64_t hooks, uint64_t scripts);
  void heard(const ImportNews& news);
  /// With the first error the step has failed.
  void failed(const Error& error);

  /// "digest=sha256:... source=store mount=kernel import=12ms prepare=9ms"; empty when nothing was built.
  [[nodiscard]] std::string text() const;
  /// The same as a JSON object, and whose step it was.
  [[nodiscard]] std::string json() const;

  /// RootOperation::keep_record: as it is now. What goes wrong with that is no step's matter: a line for debugging.
  void keep();
  /// The same, but not often, and not before an import has said that there is something to wait for.
  void keep_now_and_then();
  /// The step has ended: for the last time, if there is anything to say. Then what is old goes, of all users.
  void keep_at_end();

 private:
  using Clock = std::chrono::steady_clock;
  /// Of the log's phases, which are fewer: "import", "prepare", "save", with their milliseconds.
  [[nodiscard]] std::vector<std::pair<std::string_view, uint64_t>> logged_phases() const;

  StepRecord record_;
  RecordFile file_;
  Clock::time_point begun_, kept_;
  bool goes_on_ = false;   ///< the last phase does
  bool has_news_ = false;  ///< since it was kept
  bool cannot_keep_ = false;
};

}  // namespace situla
