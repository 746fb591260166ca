#include "common/protocol/messages.hpp"

#include <cstdlib>
#include <string>

#include "tests/fuzz/target.hpp"

/// What the broker hears of tasks, builders and importers, behind the version; and a step's request.
void situla::fuzz(std::string_view bytes) {
  static const std::string version = encode(Message(Finish())).substr(0, sizeof(uint32_t));
  const std::string packet = version + std::string(bytes);
  // Strict: of each there is one form.
  if (const auto message = decode(packet))
    if (packet.size() > kMaxMessageBytes || encode(*message) != packet) std::abort();
  if (const auto request = decode_step_request(packet))
    if (encode_step_request(*request) != packet) std::abort();
}
