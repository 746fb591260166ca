#include "common/base/excerpt.hpp"

#include "common/base/text.hpp"

namespace situla {

std::string excerpt(std::string_view text) {
  constexpr size_t kMost = 300;
  return text.size() <= kMost ? printable(text) : printable(text.substr(0, kMost)) + "...";
}

}  // namespace situla
