// What stands on the screen during a phase of an import? Lines, from events, the size of the window and the time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "hooks/progress/progress.hpp"

namespace situla {

/// Knows neither terminal nor clock: `now` is in seconds of any steady clock. One phase after the other.
class ProgressScreen {
 public:
  struct Window {
    unsigned columns = 80, rows = 24;
  };

  void begin(std::string_view phase, double now);
  /// The phase goes on, and what comes is of another one than before.
  void rename(std::string_view phase);
  void bytes(uint64_t done, uint64_t total, double now);
  void layer(const LayerProgress& layer);
  /// Shown in place of a rate while nothing arrives, and behind a phase without bytes. False: nothing new.
  bool waiting(std::string_view why);

  /// The phase, a bar for each active layer as far as the window is high enough, and one for the total. No line is as
  /// wide as the window, so that none wraps.
  [[nodiscard]] std::vector<std::string> lines(Window window, double now) const;
  /// For a log, while it lasts: "importing 7 layers: 120.0 MiB of 628.1 MiB, 45.0 MiB/s, 0:12 left". Without bytes what
  /// keeps it: "resolving x: no answer for 30 s"; empty if nothing does.
  [[nodiscard]] std::string line(double now) const;
  /// The same when it ends, with its length and its mean rate.
  [[nodiscard]] std::string last_line(double now) const;
  /// What remains of a phase: "importing 7 layers, 628.1 MiB: 6.0 s, 628.1 MiB". Empty before the first phase.
  [[nodiscard]] std::string summary(double now) const;

 private:
  struct Layer {
    std::string name;
    uint64_t done = 0, size = 0;
  };
  struct Sample {
    double time;
    uint64_t done;
  };
  [[nodiscard]] double rate(double now) const;
  /// In place of a rate: "0.0 MiB/s", "stalled for 12 s", "stalled, trying again in 4 s".
  [[nodiscard]] std::string standstill(double now) const;

  std::string phase_, waiting_;
  double since_ = 0;
  double grew_ = 0;  ///< when bytes came last
  uint64_t done_ = 0, total_ = 0;
  std::map<size_t, Layer> active_;
  std::deque<Sample> samples_;  ///< of the last seconds
};

/// Lines on a terminal that are drawn over those drawn before. In between the cursor stands below them, at the
/// beginning of a line.
class Frame {
 public:
  /// What to write. columns: of the window now.
  std::string draw(const std::vector<std::string>& lines, unsigned columns);
  /// The same to remove what stands there: nothing if nothing does.
  std::string erase(unsigned columns);
  [[nodiscard]] bool drawn() const { return !widths_.empty(); }

 private:
  std::vector<size_t> widths_;  ///< columns of the lines
};

/// One bar without colors: "NAME [=====>    ]  120.0/628.1 MiB TAIL", `columns` wide, names cut to half of that.
std::string progress_bar(std::string_view name, uint64_t done, uint64_t total, std::string_view tail, unsigned columns);

/// Columns that a text takes, every character of UTF-8 counted as one.
size_t columns_of(std::string_view text);

}  // namespace situla
