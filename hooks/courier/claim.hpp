// What does a node of a step do about the image that it lacks, or has? The file `claim.N`, which its user could write
// as well (hooks/courier/distribution.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>

#include "common/base/result.hpp"

namespace situla {

struct Claim {
  enum class State : uint8_t {
    importing,
    storing,  ///< imported; it is being synced, which may take long
    has,
    waits,   ///< for the node that imports, or has it
    deaf,    ///< waits, and cannot connect to the one that has it
    failed,  ///< another node may do better
    alone    ///< what is sent does not reach all: each imports for itself
  };
  friend constexpr State last_of(State) { return State::alone; }

  State state = State::importing;
  std::string node;    ///< host name
  uint64_t bytes = 0;  ///< fetched so far
  uint32_t of = 0;     ///< deaf: the number of the node that it cannot connect to

  static auto fields(auto& it) { return std::tie(it.state, it.node, it.bytes, it.of); }
};

std::string encode(const Claim& claim);
/// ErrorKind::corrupt for anything that encode() did not write.
Result<Claim> decode_claim(std::string_view bytes);

}  // namespace situla
