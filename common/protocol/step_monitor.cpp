#include "common/protocol/step_monitor.hpp"

#include <algorithm>

#include "common/base/base64.hpp"
#include "common/base/text.hpp"
#include "common/base/wire.hpp"

namespace situla {
namespace {

constexpr WireForm kForm{
    .what = "word of a node", .version = 0x534d0001, .most_bytes = kMostMonitorWord, .most_text = kMaxTextBytes};

}  // namespace

std::string MonitorDoor::text() const {
  std::string keys(of_monitor.begin(), of_monitor.end());
  keys.append(of_nodes.begin(), of_nodes.end());
  return std::to_string(port) + ":" + encode_base64(keys);
}

std::optional<MonitorDoor> MonitorDoor::parse(std::string_view text) {
  MonitorDoor door;
  const auto parts = cut(text, ':');
  const auto port = parts ? parse_unsigned(parts->first) : std::nullopt;
  const auto keys = parts ? decode_base64(parts->second) : std::nullopt;
  if (!port || *port == 0 || *port > UINT16_MAX || !keys || keys->size() != 2 * door.of_nodes.size())
    return std::nullopt;
  door.port = static_cast<uint32_t>(*port);
  const auto middle = keys->begin() + static_cast<std::ptrdiff_t>(door.of_nodes.size());
  std::copy(keys->begin(), middle, door.of_monitor.begin());
  std::copy(middle, keys->end(), door.of_nodes.begin());
  return door;
}

std::string encode_monitor_word(const MonitorWord& word) {
  return to_wire(word, kForm);
}

Result<MonitorWord> decode_monitor_word(std::string_view bytes) {
  return from_wire<MonitorWord>(bytes, kForm);
}

}  // namespace situla
