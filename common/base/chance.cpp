#include "common/base/chance.hpp"

#include <cstdint>
#include <random>

namespace situla {

double draw_chance() {
  std::random_device random;
  return (random() + 1.0) / (static_cast<double>(std::random_device::max()) + 1.0);
}

std::chrono::milliseconds by_chance(std::chrono::milliseconds time, double least, double most) {
  const auto whole = static_cast<double>(time.count());
  return std::chrono::milliseconds(static_cast<int64_t>(whole * (least + (most - least) * draw_chance())));
}

}  // namespace situla
