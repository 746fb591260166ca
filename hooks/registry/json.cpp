#include "hooks/registry/json.hpp"

namespace situla {
namespace {

/// Counts what a parser finds, and stops it.
struct Counter {
  using Json = nlohmann::json;
  size_t values = 0, depth = 0;

  bool value() { return ++values <= kMostJsonValues; }
  bool open() { return ++depth <= kMostJsonDepth && value(); }
  bool close() {
    --depth;
    return true;
  }

  // The interface of nlohmann's SAX parser.
  bool null() { return value(); }
  bool boolean(bool) { return value(); }
  bool number_integer(Json::number_integer_t) { return value(); }
  bool number_unsigned(Json::number_unsigned_t) { return value(); }
  bool number_float(Json::number_float_t, const std::string&) { return value(); }
  bool string(std::string&) { return value(); }
  bool binary(Json::binary_t&) { return value(); }
  bool start_object(size_t) { return open(); }
  bool key(std::string&) { return value(); }
  bool end_object() { return close(); }
  bool start_array(size_t) { return open(); }
  bool end_array() { return close(); }
  static bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) { return false; }
};

}  // namespace

std::string why_no_json(std::string_view text) {
  Counter counter;
  nlohmann::json::sax_parse(text, &counter);
  if (counter.depth > kMostJsonDepth) return "nested more than " + std::to_string(kMostJsonDepth) + " deep";
  if (counter.values > kMostJsonValues) return "more than " + std::to_string(kMostJsonValues) + " values";
  return "not JSON";
}

bool is_bounded_json(std::string_view text) {
  Counter counter;
  return nlohmann::json::sax_parse(text, &counter);
}

}  // namespace situla
