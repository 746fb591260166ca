// What does a task that waits for an import draw on its user's terminal, which only srun can see?
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "hooks/progress/progress.hpp"
#include "hooks/progress/progress_screen.hpp"

namespace situla {

/// Gives the bytes to be written there. srun passes on whole lines only, so every drawing ends with one; and it brings
/// the task's own output by another way, so nothing may move the cursor up once the task can have begun. A short import
/// draws nothing; one line remains of a long one.
class StepBars {
 public:
  using Clock = std::chrono::steady_clock;
  /// window: as it was when srun began; without columns nothing is ever drawn.
  explicit StepBars(ProgressScreen::Window window) : window_(window) {}

  void phase(std::string_view text, Clock::time_point now);
  void layer(const LayerProgress& layer) { screen_.layer(layer); }
  [[nodiscard]] std::string bytes(uint64_t done, uint64_t total, Clock::time_point now);
  /// To be written before anything else is.
  [[nodiscard]] std::string erase() { return frame_.erase(window_.columns); }
  /// To be written at the end.
  [[nodiscard]] std::string finish(Clock::time_point now);

 private:
  ProgressScreen::Window window_;
  ProgressScreen screen_;
  Frame frame_;
  Clock::time_point next_;
};

}  // namespace situla
