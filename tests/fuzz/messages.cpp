#include "common/protocol/messages.hpp"

#include <cstdlib>
#include <string>

#include "tests/fuzz/target.hpp"

/// What the broker hears of tasks, builders and importers, behind the version; and a step's request.
void situla::fuzz(std::string_view bytes) {
  static const std::string version = encode(Message(Finish())).substr(0, sizeof(uint32_t));
  const std::string packet = version + std::string(bytes);
  if (const auto message = decode(packet)) {
    const std::string written = encode(*message);
    const auto again = decode(written);
    if (written.size() > kMaxMessageBytes || !again || again->index() != message->index() || encode(*again) != written)
      std::abort();
  }
  if (const auto request = decode_step_request(packet)) {
    const std::string written = encode_step_request(*request);
    const auto again = decode_step_request(written);
    if (!again || encode_step_request(*again) != written) std::abort();
  }
}
