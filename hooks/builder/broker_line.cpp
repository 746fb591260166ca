#include "hooks/builder/broker_line.hpp"

#include <cerrno>
#include <new>
#include <string>

#include <poll.h>

#include "common/protocol/contract.hpp"

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
  (void)send_packet(builder_fd::kBroker, encode(Failure::of(error)));
  return 1;
}

bool broker_has_closed() {
  pollfd broker{builder_fd::kBroker, 0, 0};
  return poll(&broker, 1, 0) > 0 && (broker.revents & POLLHUP) != 0;
}

Result<Answer> ask_broker(const Message& message) {
  TRY(send_packet(builder_fd::kBroker, encode(message)));
  auto packet = receive_packet(builder_fd::kBroker, kMaxMessageBytes);
  if (!packet && packet.error().errnum() != ECONNRESET) return fail(std::move(packet).error());
  if (!packet || !*packet) return fail(ErrorKind::cancelled, "");
  TRY_ASSIGN(Message answer, decode((*packet)->bytes));
  return Answer{std::move(answer), std::move((*packet)->fds)};
}

Result<void> leave_for_saver(const UniqueFd& directory, const UniqueFd& image) {
  std::vector<int> fds = {directory.get()};
  if (image) fds.push_back(image.get());
  return put_into_parcel(builder_fd::kSaved, fds);
}

}  // namespace situla
