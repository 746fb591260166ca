#include "hooks/courier/claim.hpp"

#include "common/base/wire.hpp"

namespace situla {
namespace {

constexpr WireForm kClaimForm{.what = "claim", .version = 0x53430103, .most_bytes = 512, .most_text = 256};

}  // namespace

std::string encode(const Claim& claim) {
  return to_wire(claim, kClaimForm);
}

Result<Claim> decode_claim(std::string_view bytes) {
  return from_wire<Claim>(bytes, kClaimForm);
}

}  // namespace situla
