// How is JSON of a stranger parsed? Within bounds of depth and of values: a byte of text can cost sixty of memory.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace situla {

constexpr size_t kMostJsonDepth = 64;
constexpr size_t kMostJsonValues = 100'000;  // an honest configuration has some thousands

/// Whether the text is JSON within these bounds. Costs no memory but for one string of it.
bool is_bounded_json(std::string_view text);

/// "not JSON", or which bound it breaks.
std::string why_no_json(std::string_view text);

/// A discarded value for what is not.
template <typename Json>
Json parse_bounded_json(std::string_view text) {
  return is_bounded_json(text) ? Json::parse(text, nullptr, false) : Json(nlohmann::detail::value_t::discarded);
}

}  // namespace situla
