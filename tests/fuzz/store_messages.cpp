#include <cstdlib>
#include <string>

#include "hooks/store/messages.hpp"
#include "hooks/store/store_socket.hpp"
#include "tests/fuzz/target.hpp"

namespace {

/// Strict: of each message there is one form.
template <typename Decode, typename Encode>
void check(const std::string& some_packet, std::string_view bytes, const Decode& decode, const Encode& encode) {
  const std::string packet = some_packet.substr(0, sizeof(uint32_t)) + std::string(bytes);
  const auto message = decode(packet);
  if (message && encode(*message) != packet) std::abort();
}

}  // namespace

/// What somebody who has taken over an importer, and any user at the socket, could say to the store program, behind the
/// version.
void situla::fuzz(std::string_view bytes) {
  check(store_line::encode(store_line::Have()), bytes, store_line::decode, store_line::encode);
  check(store_socket::encode(store_socket::Copied()), bytes, store_socket::decode, store_socket::encode);
}
