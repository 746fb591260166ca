// What did starting this step cost, and where did its image come from? One line for the node's log.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace situla {

/// Phases do not overlap; one that is not over when the text is asked for is left out.
class StepReport {
 public:
  void set_digest(std::string digest) { digest_ = std::move(digest); }
  void set_source(std::string source) { source_ = std::move(source); }
  void set_root(std::string root) { root_ = std::move(root); }
  void begin(std::string_view phase);
  void end();

  /// "digest=sha256:... source=store mount=kernel import=12ms prepare=9ms"; empty when nothing was built.
  [[nodiscard]] std::string text() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Phase {
    std::string name;
    std::chrono::milliseconds time{0};
  };
  std::string digest_, source_, root_;
  std::vector<Phase> phases_;
  std::string running_;
  Clock::time_point begun_;
};

}  // namespace situla
