// How far are the nodes of a step with its image? One bar, or lines in a log, of the one that is slowest. No bar may
// stand where a task writes: it is there as long as all nodes import or wait. One that has said nothing may have begun.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/protocol/messages.hpp"
#include "hooks/progress/progress_renderer.hpp"

namespace situla {

class StepProgress {
 public:
  using Clock = StepBars::Clock;

  /// nodes: 0 where it is not known how many there are. terminal: of srun; its columns are 0 where there is none.
  StepProgress(uint32_t nodes, std::string image, ProgressView terminal);

  // What these return is to be written.

  std::string heard(const std::string& node, const ImportProgress& progress, Clock::time_point now);
  std::string heard(const std::string& node, const ImportWaits& waits, Clock::time_point now);
  /// The node has the image, and its task begins.
  std::string over(const std::string& node, Clock::time_point now);
  /// The node is gone, with the image or without it.
  std::string lost(const std::string& node, Clock::time_point now);
  /// Something else is about to be written.
  std::string pause(Clock::time_point now);

 private:
  struct Node {
    uint64_t done = 0, total = 0;
    std::string waits_for;  ///< empty: it imports
  };
  std::string show(Clock::time_point now);
  /// Of those that import the one with the smallest part; nullptr: none does.
  [[nodiscard]] const std::pair<const std::string, Node>* slowest();
  [[nodiscard]] std::string title(const std::pair<const std::string, Node>* slowest) const;

  uint32_t nodes_;
  bool is_terminal_;
  std::string image_;
  StepBars bars_, lines_;
  std::string title_, slowest_;
  std::map<std::string, Node> importing_;
  size_t over_ = 0;
};

}  // namespace situla
