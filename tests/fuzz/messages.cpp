#include "common/protocol/messages.hpp"

#include <cstdlib>
#include <string>

#include "common/protocol/step_monitor.hpp"
#include "tests/fuzz/target.hpp"

/// What the broker hears of tasks, builders and importers, behind the version; a step's request, and the container in
/// it; what situla-monitor hears of anybody.
void situla::fuzz(std::string_view bytes) {
  static const std::string version = encode(Message(Finish())).substr(0, sizeof(uint32_t));
  const std::string packet = version + std::string(bytes);
  // Strict: of each there is one form.
  if (const auto message = decode(packet))
    if (packet.size() > kMaxMessageBytes || encode(*message) != packet) std::abort();
  if (const auto request = decode_step_request(packet))
    if (encode_step_request(*request) != packet) std::abort();
  // What the user asked for, which the builder reads behind the broker's back.
  static const std::string spec_version = ContainerSpec().serialize().substr(0, sizeof(uint32_t));
  const std::string spec_bytes = spec_version + std::string(bytes);
  if (const auto spec = ContainerSpec::deserialize(spec_bytes)) {
    if (spec->serialize() != spec_bytes) std::abort();
    (void)spec->exact_image();
  }
  static const std::string word_version = encode_monitor_word(Taken()).substr(0, sizeof(uint32_t));
  const std::string frame = word_version + std::string(bytes);
  if (const auto word = decode_monitor_word(frame))
    if (encode_monitor_word(*word) != frame) std::abort();
  if (const auto door = MonitorDoor::parse(bytes))
    if (!MonitorDoor::parse(door->text())) std::abort();
}
