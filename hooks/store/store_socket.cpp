#include "hooks/store/store_socket.hpp"

#include <cerrno>

#include "common/base/wire.hpp"
#include "common/protocol/contract.hpp"
#include "common/sys/socket.hpp"

namespace situla::store_socket {
namespace {

constexpr WireForm kSocketForm{
    .what = "message between user and store", .version = 0x53530001, .most_bytes = kMaxBytes, .most_text = kMaxText};

}  // namespace

std::string encode(const Message& message) {
  return to_wire(message, kSocketForm);
}

Result<Message> decode(std::string_view bytes) {
  return from_wire<Message>(bytes, kSocketForm);
}

Result<UniqueFd> ask(const Message& question, const std::vector<int>& fds) {
  auto socket = connect_to(kStoreSocket);
  if (!socket && socket.error().errnum() == ECONNREFUSED)
    return fail(ErrorKind::not_found, "nobody listens at " + std::string(kStoreSocket));
  if (!socket) return socket;
  TRY(send_packet(socket->get(), encode(question), fds));
  return socket;
}

Result<Answer> receive(int socket) {
  TRY_ASSIGN(auto packet, receive_packet(socket, kMaxBytes));
  if (!packet) return fail(Error(ErrorKind::failure, "the node's store has hung up").with_code(ErrorCode::helper));
  TRY_ASSIGN(Message answer, decode(packet->bytes));
  return Answer{std::move(answer), std::move(packet->fds)};
}

}  // namespace situla::store_socket
