// How do messages of the builder reach the user? Over the broker, to the tasks that wait.
#pragma once

#include "common/base/error.hpp"
#include "common/base/log.hpp"

namespace situla {

/// Sends every line but debug lines as a Note on builder_fd::kBroker.
class BrokerLog final : public LogSink {
 public:
  void write(LogLevel level, std::string_view message) noexcept override;
};

/// Sends the Failure that ends the step; returns exit code 1.
int tell_failure(const Error& error);

}  // namespace situla
