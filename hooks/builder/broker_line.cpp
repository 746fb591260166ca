#include "hooks/builder/broker_line.hpp"

#include <cerrno>

#include "plugin/broker/contract.hpp"

namespace situla {

Result<Answer> ask_broker(const Message& message, const std::vector<int>& fds) {
  TRY(send_packet(builder_fd::kBroker, encode(message), fds));
  auto packet = receive_packet(builder_fd::kBroker, kMaxMessageBytes);
  if (!packet && packet.error().errnum() != ECONNRESET) return fail(std::move(packet).error());
  if (!packet || !*packet) return fail(ErrorKind::cancelled, "");
  TRY_ASSIGN(Message answer, decode((*packet)->bytes));
  return Answer{std::move(answer), std::move((*packet)->fds)};
}

}  // namespace situla
