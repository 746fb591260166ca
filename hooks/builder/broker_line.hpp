// What does the builder ask the broker while it works?
#pragma once

#include "common/base/result.hpp"
#include "common/protocol/messages.hpp"
#include "common/sys/socket.hpp"

namespace situla {

/// A message of the broker with its descriptors.
struct Answer {
  Message message;
  std::vector<UniqueFd> fds;
};

/// What --container-save will export if the container is as it is now; the last call counts. The saver finds it.
Result<void> leave_for_saver(const UniqueFd& directory, const UniqueFd& image);

/// Sends, and waits for the answer. ErrorKind::cancelled with an empty message when the broker closes the connection:
/// it needs no container any more.
Result<Answer> ask_broker(const Message& message);

}  // namespace situla
