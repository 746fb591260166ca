#include "hooks/courier/messages.hpp"

#include "common/base/text.hpp"
#include "common/base/wire.hpp"
#include "common/protocol/contract.hpp"

namespace situla::courier_line {
namespace {

constexpr WireForm kForm{
    .what = "message between store and courier", .version = 0x53550002, .most_bytes = kMaxBytes, .most_text = kMaxText};

}  // namespace

std::string file_name(Kind kind, uint32_t node) {
  return incoming_file_name(kIncomingKinds.at(static_cast<size_t>(kind)), node);
}

Result<FileName> parse_file_name(std::string_view name) {
  const auto parts = cut(name, '.');
  const auto node = parts ? parse_unsigned(parts->second) : std::nullopt;
  for (size_t i = 0; node && *node < UINT32_MAX && i < kIncomingKinds.size(); ++i)
    if (parts->first == kIncomingKinds.at(i) && parts->second == std::to_string(*node))
      return FileName{static_cast<Kind>(i), static_cast<uint32_t>(*node)};
  return fail(ErrorKind::corrupt, "no name of a file that a node sends: " + printable(name));
}

std::string encode(const Message& message) {
  return to_wire(message, kForm);
}

Result<Message> decode(std::string_view bytes) {
  return from_wire<Message>(bytes, kForm);
}

}  // namespace situla::courier_line
