#include "common/protocol/messages.hpp"

#include "common/base/wire.hpp"

namespace situla {
namespace {

// Changes with every change of a message: the plugin and the programs it starts may be upgraded while a job runs.
constexpr uint32_t kVersion = 0x53490007;
constexpr WireForm kMessage{"message", kVersion, kMaxMessageBytes, kMaxTextBytes};
constexpr WireForm kStepRequest{"step request", kVersion, size_t{16} << 20U};

}  // namespace

std::string encode(const Message& message) {
  return to_wire(message, kMessage);
}

Result<Message> decode(std::string_view bytes) {
  return from_wire<Message>(bytes, kMessage);
}

std::string encode_step_request(const StepRequest& request) {
  return to_wire(request, kStepRequest);
}

Result<StepRequest> decode_step_request(std::string_view bytes) {
  return from_wire<StepRequest>(bytes, kStepRequest);
}

}  // namespace situla
