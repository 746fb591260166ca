// What would the user have been told? A LogSink that keeps its messages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/log.hpp"

namespace situla::test {

class MemoryLog final : public LogSink {
 public:
  struct Message {
    LogLevel level;
    std::string text;
  };

  void write(LogLevel level, std::string_view message) noexcept override {
    messages.push_back({level, std::string(message)});
  }

  /// How many messages of this level contain the text.
  [[nodiscard]] int count(LogLevel level, std::string_view text) const {
    int found = 0;
    for (const Message& message : messages)
      if (message.level == level && message.text.find(text) != std::string::npos) ++found;
    return found;
  }

  /// Those of this level and graver ones, a line each.
  [[nodiscard]] std::string text(LogLevel least = LogLevel::debug) const {
    std::string lines;
    for (const Message& message : messages)
      if (message.level >= least) lines += message.text + "\n";
    return lines;
  }

  std::vector<Message> messages;
};

}  // namespace situla::test
