#include "hooks/squashfs/trace.hpp"

#include <array>
#include <cstdio>

#include "common/spec/json.hpp"

namespace situla {
namespace {

std::string quoted(const std::string& text) {
  return to_text(Json(text), {.indent = -1, .ascii = true});
}

std::string microseconds(int64_t nanoseconds) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3f", static_cast<double>(nanoseconds) / 1000.0);
  return text.data();
}

int64_t nanoseconds(Trace::Clock::duration time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

}  // namespace

uint32_t Trace::thread_row() {
  const auto [found, added] = threads_.emplace(std::this_thread::get_id(), static_cast<uint32_t>(rows_.size()));
  if (added) rows_.emplace_back("thread");
  return found->second;
}

void Trace::put(const char* name, Time begin, Time end, uint32_t row, uint32_t layer) {
  if (spans_.size() >= kMostSpans) {
    ++dropped_;
    return;
  }
  spans_.push_back({name, nanoseconds(begin - start_), nanoseconds(end - begin), row, layer});
}

void Trace::add(const char* name, Time begin, Time end, std::string_view layer) {
  const std::scoped_lock lock(mutex_);
  uint32_t number = 0;
  if (!layer.empty()) {
    auto found = layer_numbers_.find(layer);
    if (found == layer_numbers_.end()) {
      layers_.emplace_back(layer);
      found = layer_numbers_.emplace(layer, static_cast<uint32_t>(layers_.size())).first;
    }
    number = found->second;
  }
  put(name, begin, end, thread_row(), number);
}

void Trace::add_to_row(const char* row, const char* name, Time begin, Time end) {
  const std::scoped_lock lock(mutex_);
  const auto [found, added] = named_.emplace(row, static_cast<uint32_t>(rows_.size()));
  if (added) rows_.emplace_back(row);
  put(name, begin, end, found->second, 0);
}

void Trace::name_thread(const char* name) {
  const std::scoped_lock lock(mutex_);
  rows_[thread_row()] = name;
}

std::string Trace::json() const {
  const std::scoped_lock lock(mutex_);
  std::string text = "[";
  for (size_t row = 0; row < rows_.size(); ++row)
    text += std::string(row == 0 ? "\n" : ",\n") + R"({"name":"thread_name","ph":"M","pid":1,"tid":)" +
            std::to_string(row + 1) + R"(,"args":{"name":)" + quoted(rows_[row]) + "}}";
  for (const Span& span : spans_) {
    text += R"(,
{"name":")" +
            std::string(span.name) + R"(","cat":"import","ph":"X","pid":1,"tid":)" + std::to_string(span.row + 1) +
            R"(,"ts":)" + microseconds(span.begin) + R"(,"dur":)" + microseconds(span.length);
    if (span.layer != 0) text += R"(,"args":{"layer":)" + quoted(layers_[span.layer - 1]) + "}";
    text += "}";
  }
  return text + "\n]\n";
}

}  // namespace situla
