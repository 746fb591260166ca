// How is an origin written in the name of a file?
#pragma once

#include <string>

#include "hooks/sources/origin.hpp"

namespace situla {

/// 32 hexadecimal digits. What is imported by one origin is never given to somebody who asks by another one.
std::string origin_key(const Origin& origin);

}  // namespace situla
