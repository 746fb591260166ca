// What do the processes that the broker starts say to it, and ask it? What they log reaches the user by it: the tasks
// wait for it.
#pragma once

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/protocol/messages.hpp"
#include "common/sys/socket.hpp"

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

/// Nobody waits any more; a moment later the broker kills.
bool broker_has_closed();

/// A message of the broker with its descriptors.
struct Answer {
  Message message;
  std::vector<UniqueFd> fds;
};

/// Sends, and waits for the answer. ErrorKind::cancelled with an empty message when the broker closes the connection:
/// it needs no container any more.
Result<Answer> ask_broker(const Message& message);

/// What --container-save will export if the container is as it is now; the last call counts. The saver finds it.
Result<void> leave_for_saver(const UniqueFd& directory, const UniqueFd& image);

}  // namespace situla
