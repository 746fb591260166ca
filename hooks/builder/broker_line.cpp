#include "hooks/builder/broker_line.hpp"

#include <cerrno>

#include "common/protocol/contract.hpp"

namespace situla {

Result<void> leave_for_saver(const UniqueFd& directory, const UniqueFd& image) {
  std::vector<int> fds = {directory.get()};
  if (image) fds.push_back(image.get());
  return put_into_parcel(builder_fd::kSaved, fds);
}

Result<Answer> ask_broker(const Message& message) {
  TRY(send_packet(builder_fd::kBroker, encode(message)));
  auto packet = receive_packet(builder_fd::kBroker, kMaxMessageBytes);
  if (!packet && packet.error().errnum() != ECONNRESET) return fail(std::move(packet).error());
  if (!packet || !*packet) return fail(ErrorKind::cancelled, "");
  TRY_ASSIGN(Message answer, decode((*packet)->bytes));
  return Answer{std::move(answer), std::move((*packet)->fds)};
}

}  // namespace situla
