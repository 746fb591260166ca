// What has failed on which nodes? What failed alike is one message.
#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/error.hpp"

namespace situla {

class Failures {
 public:
  using Clock = std::chrono::steady_clock;
  /// After the newest failure another node may fail alike; but who failed first waits no longer than that.
  static constexpr std::chrono::milliseconds kQuiet{2000};
  static constexpr std::chrono::milliseconds kQuietOfAll{100};  ///< when all nodes have failed: others of their tasks
  static constexpr std::chrono::milliseconds kLongest{6000};

  /// nodes: of the step.
  explicit Failures(uint32_t nodes) : nodes_(nodes) {}

  /// False: no more is kept.
  bool add(const std::string& node, const SentError& error, Clock::time_point now);
  /// What was added, and not taken since.
  void withdraw(const std::string& node, const SentError& error);
  /// When there is something to say; nullopt: nothing has failed since the last take().
  [[nodiscard]] std::optional<Clock::time_point> due() const;
  /// Lines for srun's standard error, in the order of the failures.
  std::vector<std::string> take();

 private:
  struct One {
    std::string node, text;
  };
  struct Group {
    SentError error;
    std::string alike;       ///< the text, its node's name taken out
    std::vector<One> fresh;  ///< what is not said yet: one for each task
    bool said = false;       ///< before, of other nodes
  };

  Group* find(const std::string& node, const SentError& error);

  uint32_t nodes_;
  std::vector<Group> groups_;
  std::set<std::string> failed_;
  Clock::time_point first_{}, last_{};
  size_t fresh_ = 0;
};

}  // namespace situla
