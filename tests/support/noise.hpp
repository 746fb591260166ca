// Content that does not compress, the same in every run.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <string>

namespace situla::test {

/// size bytes; of the same seed, the shorter is how the longer begins.
inline std::string noise(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string text(size + sizeof(uint64_t), '\0');
  for (size_t i = 0; i < size; i += sizeof(uint64_t)) {
    const uint64_t word = random();
    std::memcpy(text.data() + i, &word, sizeof word);
  }
  text.resize(size);
  return text;
}

}  // namespace situla::test
