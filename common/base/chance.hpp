// How do a thousand nodes that began together not go on together?
#pragma once

#include <chrono>

namespace situla {

/// Evenly in (0, 1]. Not for secrets.
double draw_chance();
/// By chance more than `least` and at most `most` times so long.
std::chrono::milliseconds by_chance(std::chrono::milliseconds time, double least, double most);

}  // namespace situla
