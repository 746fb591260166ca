// Who writes a step's image into the job's record? A process that nobody waits for (hooks/recorder).
#pragma once

#include <chrono>
#include <optional>

#include "common/sys/process/process.hpp"
#include "plugin/broker/report/step_report.hpp"
#include "plugin/broker/step.hpp"

namespace situla {

/// RootOperation::record_image. Of the first node of a step, where the site wants it. Whatever becomes of it, the step
/// is none the wiser: a line in the node's log is all. The process is a child of this one, holds no descriptor of
/// anybody's, and ends with this object.
class Recorder {
 public:
  /// When the container is ready. Does nothing where there is nothing to say.
  void start(const Step& step, const StepReport& report);
  /// Readable when it has ended; -1: there is none, or the kernel has no such descriptors (Linux < 5.3).
  [[nodiscard]] int pidfd() const { return process_.pidfd(); }
  /// When its time is over.
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> deadline() const;
  /// Takes its end, or ends it when its time is over.
  void check();
  /// With the step: what it has not written by now is not written. `step` as in the log.
  void end(const std::string& step);

 private:
  Child process_;
  std::chrono::steady_clock::time_point deadline_{};
};

}  // namespace situla
