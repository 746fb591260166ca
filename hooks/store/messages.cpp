#include "hooks/store/messages.hpp"

#include "common/base/wire.hpp"

namespace situla::store_line {
namespace {

constexpr WireForm kForm{
    .what = "message between importer and store", .version = 0x534c0005, .most_bytes = kMaxBytes, .most_text = 1024};

}  // namespace

std::string encode(const Message& message) {
  return to_wire(message, kForm);
}

Result<Message> decode(std::string_view bytes) {
  return from_wire<Message>(bytes, kForm);
}

}  // namespace situla::store_line
