#include "common/sys/chance.hpp"

#include <cstdint>

#include <sys/random.h>
#include <unistd.h>

namespace situla {

std::chrono::milliseconds by_chance(std::chrono::milliseconds time, double least, double most) {
  uint32_t drawn = 0;
  // Before the pool is ready (early boot) the time and the pid must do.
  if (getrandom(&drawn, sizeof drawn, GRND_NONBLOCK) != static_cast<ssize_t>(sizeof drawn))
    drawn = static_cast<uint32_t>(std::chrono::steady_clock::now().time_since_epoch().count()) *
            static_cast<uint32_t>(getpid());
  const double part = static_cast<double>(drawn) / 4294967296.0;
  return std::chrono::milliseconds(
      static_cast<int64_t>(static_cast<double>(time.count()) * (least + (most - least) * part)));
}

}  // namespace situla
