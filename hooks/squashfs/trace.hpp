// Where did the time of an import go? Spans of work by thread and layer, as a Chrome trace.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace situla {

/// Kept in memory until it is written: 32 bytes a span, at most kMostSpans. From any thread. Whoever may be traced
/// holds a pointer that is null when nobody wants to know.
class Trace {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;
  static constexpr size_t kMostSpans = size_t{1} << 20U;

  /// In the row of the calling thread. name: a literal.
  void add(const char* name, Time begin, Time end, std::string_view layer = {});
  /// In a row of its own, for what several threads do one after the other.
  void add_to_row(const char* row, const char* name, Time begin, Time end);
  /// Names the row of the calling thread.
  void name_thread(const char* name);

  /// A JSON array of events (Trace Event Format): "X" for spans, times in microseconds since the trace began, and "M"
  /// for the names of rows. chrome://tracing and Perfetto open it.
  [[nodiscard]] std::string json() const;
  /// Spans that had no room.
  [[nodiscard]] size_t dropped() const { return dropped_; }

 private:
  struct Span {
    const char* name;
    int64_t begin, length;  ///< nanoseconds
    uint32_t row, layer;    ///< layer 0: none
  };
  uint32_t thread_row();
  void put(const char* name, Time begin, Time end, uint32_t row, uint32_t layer);

  const Time start_ = Clock::now();
  mutable std::mutex mutex_;
  std::vector<Span> spans_;
  std::vector<std::string> rows_;  ///< names
  std::map<std::thread::id, uint32_t> threads_;
  std::map<std::string, uint32_t, std::less<>> named_;
  std::vector<std::string> layers_;
  std::map<std::string, uint32_t, std::less<>> layer_numbers_;
  size_t dropped_ = 0;
};

/// From its making to its end, in the thread's row. Nothing if there is no trace.
class TraceSpan {
 public:
  TraceSpan(Trace* trace, const char* name, std::string_view layer = {})
      : trace_(trace), name_(name), layer_(layer), begin_(trace == nullptr ? Trace::Time() : Trace::Clock::now()) {}
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;
  ~TraceSpan() {
    if (trace_ != nullptr) trace_->add(name_, begin_, Trace::Clock::now(), layer_);
  }

 private:
  Trace* trace_;
  const char* name_;
  std::string_view layer_;
  Trace::Time begin_;
};

/// One thread that takes turns between two things too short to be told one by one: the time of the second is summed up,
/// and both are told at every cut, one behind the other.
class TraceTurns {
 public:
  TraceTurns(Trace* trace, const char* first, const char* second) : trace_(trace), first_(first), second_(second) {}

  /// Begins, unless it has begun.
  void begin() {
    if (trace_ != nullptr) begin_ = Trace::Clock::now();
  }
  void cut(std::string_view layer) {
    if (trace_ == nullptr || begin_ == Trace::Time()) return;
    const Trace::Time now = Trace::Clock::now();
    trace_->add(first_, begin_, now - sum_, layer);
    if (sum_.count() > 0) trace_->add(second_, now - sum_, now, layer);
    sum_ = {};
    begin_ = {};
  }
  /// Runs call as a turn of the second thing.
  template <typename Call>
  auto second(const Call& call) {
    if (trace_ == nullptr) return call();
    const Trace::Time start = Trace::Clock::now();
    auto result = call();
    sum_ += Trace::Clock::now() - start;
    return result;
  }

 private:
  Trace* trace_;
  const char *first_, *second_;
  Trace::Time begin_{};
  Trace::Clock::duration sum_{};
};

}  // namespace situla
