// How do a thousand nodes that began together not go on together?
#pragma once

#include <chrono>

namespace situla {

/// By chance at least `least` and less than `most` times so long. Not for secrets.
std::chrono::milliseconds by_chance(std::chrono::milliseconds time, double least, double most);

}  // namespace situla
