#include "hooks/builder/broker_log.hpp"

#include <new>
#include <string>

#include "common/protocol/contract.hpp"
#include "common/protocol/messages.hpp"
#include "common/sys/socket.hpp"

namespace situla {

void BrokerLog::write(LogLevel level, std::string_view message) noexcept {
  if (level == LogLevel::debug && !debug_) return;
  // Slurm would show debug lines only to those who ask Slurm for its own.
  if (level == LogLevel::debug) level = LogLevel::info;
  try {
    (void)send_packet(builder_fd::kBroker, encode(Note{level, std::string(message)}));
  } catch (const std::bad_alloc&) {
    // A lost line of progress is no reason to fail.
  }
}

int tell_failure(const Error& error) {
  (void)send_packet(builder_fd::kBroker, encode(Failure{error.kind(), error.message(), error.hint()}));
  return 1;
}

}  // namespace situla
