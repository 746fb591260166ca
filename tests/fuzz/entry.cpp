// libFuzzer's entry point, the same for all targets.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  situla::fuzz({reinterpret_cast<const char*>(data), size});
  return 0;
}
