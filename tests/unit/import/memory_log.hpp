// What was logged?
#pragma once

#include <string>

#include "common/base/log.hpp"

namespace situla::test {

class MemoryLog final : public LogSink {
 public:
  void write(LogLevel, std::string_view message) noexcept override { text += std::string(message) + "\n"; }
  std::string text;
};

}  // namespace situla::test
