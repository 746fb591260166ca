#include "hooks/store/socket_messages.hpp"

#include "common/base/wire.hpp"

namespace situla::store_socket {
namespace {

constexpr WireForm kSocketForm{.what = "message between user and store",
                               .version = 0x53530001,
                               .most_bytes = kMaxBytes,
                               .most_text = kMaxText};

}  // namespace

std::string encode(const Message& message) {
  return to_wire(message, kSocketForm);
}

Result<Message> decode(std::string_view bytes) {
  return from_wire<Message>(bytes, kSocketForm);
}

}  // namespace situla::store_socket
