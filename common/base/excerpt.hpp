// How much of a stranger's words may a message of ours have?
#pragma once

#include <string>
#include <string_view>

namespace situla {

/// printable() of the first 300 bytes, with "..." where there are more. For all that a registry or an image says.
std::string excerpt(std::string_view text);

}  // namespace situla
