#include "hooks/slurm/messages.hpp"

#include <algorithm>

#include "common/base/wire.hpp"

namespace situla::slurm_line {
namespace {

constexpr uint32_t kVersion = 0x534c0001;
constexpr WireForm kMessageForm{"message of a Slurm command", kVersion, kMaxMessageBytes};
// A NUL in a word would make it mean one thing here and another to execve(2).
constexpr WireForm kRequestForm{
    .what = "request of a Slurm command", .version = kVersion, .most_bytes = kMaxRequestBytes, .nul_in_text = false};

}  // namespace

HalfToken first_half(const StepToken& token) {
  HalfToken half{};
  std::copy_n(token.begin(), half.size(), half.begin());
  return half;
}

HalfToken second_half(const StepToken& token) {
  HalfToken half{};
  std::copy_n(token.begin() + half.size(), half.size(), half.begin());
  return half;
}

std::string encode_request(const Request& request) {
  return to_wire(request, kRequestForm);
}

Result<Request> decode_request(std::string_view bytes) {
  return from_wire<Request>(bytes, kRequestForm);
}

std::string encode_inside(const Inside& inside) {
  return to_wire(inside, kRequestForm);
}

Result<Inside> decode_inside(std::string_view bytes) {
  return from_wire<Inside>(bytes, kRequestForm);
}

std::string encode(const Message& message) {
  return to_wire(message, kMessageForm);
}

Result<Message> decode(std::string_view bytes) {
  return from_wire<Message>(bytes, kMessageForm);
}

}  // namespace situla::slurm_line
