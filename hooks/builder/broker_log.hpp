// How do messages of the builder reach the user? Over the broker, to the tasks that wait.
#pragma once

#include "common/base/error.hpp"
#include "common/base/log.hpp"

namespace situla {

/// Sends every line as a Note on builder_fd::kBroker; debug lines only when the user wants to see them.
class BrokerLog final : public LogSink {
 public:
  void show_debug(bool shown) { debug_ = shown; }
  void write(LogLevel level, std::string_view message) noexcept override;

 private:
  bool debug_ = false;
};

/// Sends the Failure that ends the step; returns exit code 1.
int tell_failure(const Error& error);

}  // namespace situla
