#include <algorithm>

#include <nlohmann/json.hpp>

#include "common/base/text.hpp"
#include "hooks/inject/cdi/value.hpp"

namespace situla::cdi {
namespace {

using Json = nlohmann::json;

class Handler final : public nlohmann::json_sax<Json> {
 public:
  ValueBuilder builder;
  size_t stopped_at = 0;
  std::string problem;

  bool null() override { return builder.scalar(Value::Kind::null, ""); }
  bool boolean(bool value) override { return builder.scalar(Value::Kind::word, value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override {
    return builder.scalar(Value::Kind::word, std::to_string(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return builder.scalar(Value::Kind::word, std::to_string(value));
  }
  bool number_float(number_float_t, const string_t& text) override { return builder.scalar(Value::Kind::word, text); }
  bool string(string_t& value) override { return builder.scalar(Value::Kind::string, std::move(value)); }
  bool binary(binary_t&) override { return builder.refuse("binary data"); }
  bool start_object(std::size_t) override { return builder.begin(Value::Kind::map); }
  bool key(string_t& value) override { return builder.scalar(Value::Kind::string, std::move(value)); }
  bool end_object() override { return builder.end(); }
  bool start_array(std::size_t) override { return builder.begin(Value::Kind::list); }
  bool end_array() override { return builder.end(); }
  bool parse_error(std::size_t position, const std::string& last, const nlohmann::detail::exception&) override {
    stopped_at = position;
    problem = last.empty() ? "ends too early" : "not JSON near \"" + printable(last.substr(0, 40)) + "\"";
    return false;
  }
};

}  // namespace

Result<Value> read_json(std::string_view text) {
  Handler handler;
  if (Json::sax_parse(text, &handler) || handler.builder.refusal()) return handler.builder.finish();
  const size_t end = std::min(handler.stopped_at, text.size());
  const auto lines = std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(end), '\n');
  return fail(ErrorKind::corrupt, "line " + std::to_string(lines + 1) + ": " + handler.problem);
}

}  // namespace situla::cdi
