// What does a fuzz target have to define?
#pragma once

#include <string_view>

namespace situla {

/// Reads hostile bytes with one parser. Crashes, sanitizer reports, memory without bound and loops without end are
/// findings; an answer that contradicts itself calls std::abort().
void fuzz(std::string_view bytes);

}  // namespace situla
