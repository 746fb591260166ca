// Into which slot goes a name that a stranger chose? Into one that he cannot foretell.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

#include <sys/random.h>

namespace situla {

/// SipHash with one and three rounds, and a key of this process. With std::hash, a million names that share one slot
/// are easily made, and would take hours to look up. Nothing that is written depends on it.
class KeyedHash {
 public:
  KeyedHash() {
    if (getrandom(key_, sizeof key_, 0) != sizeof key_) key_[0] = reinterpret_cast<uintptr_t>(this);
  }
  [[nodiscard]] uint64_t operator()(std::string_view text, uint64_t more = 0) const {
    State state{key_[0] ^ 0x736f6d6570736575U, key_[1] ^ 0x646f72616e646f6dU, key_[0] ^ 0x6c7967656e657261U,
                key_[1] ^ 0x7465646279746573U};
    state.take(more);
    const uint64_t last = static_cast<uint64_t>(text.size()) << 56U;
    for (; text.size() >= sizeof(uint64_t); text.remove_prefix(sizeof(uint64_t))) state.take(word(text));
    state.take(last | word(text));
    state.v2 ^= 0xFFU;
    for (int i = 0; i < 3; ++i) state.round();
    return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
  }

 private:
  struct State {
    uint64_t v0, v1, v2, v3;
    void round() {
      v0 += v1;
      v2 += v3;
      v1 = std::rotl(v1, 13) ^ v0;
      v3 = std::rotl(v3, 16) ^ v2;
      v0 = std::rotl(v0, 32) + v3;
      v2 += v1;
      v3 = std::rotl(v3, 21) ^ v0;
      v1 = std::rotl(v1, 17) ^ v2;
      v2 = std::rotl(v2, 32);
    }
    void take(uint64_t word) {
      v3 ^= word;
      round();
      v0 ^= word;
    }
  };
  static uint64_t word(std::string_view text) {
    uint64_t value = 0;
    // An empty view may have no address, not even for nothing.
    if (!text.empty()) std::memcpy(&value, text.data(), text.size() < sizeof value ? text.size() : sizeof value);
    return value;
  }
  uint64_t key_[2] = {0, 0};  // NOLINT: filled by a system call
};

}  // namespace situla
