#include "hooks/inject/cdi/value.hpp"

#include <algorithm>
#include <istream>
#include <streambuf>
#include <utility>

#include <nlohmann/json.hpp>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include "common/base/text.hpp"

namespace situla::cdi {
namespace {

using Json = nlohmann::json;

class JsonHandler final : public nlohmann::json_sax<Json> {
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

/// Ends the parser, which knows no other way out of an event; caught below.
struct Refused {
  YAML::Mark mark;
};

class YamlHandler final : public YAML::EventHandler {
 public:
  ValueBuilder builder;

  void OnDocumentStart(const YAML::Mark& mark) override { mark_ = mark; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { take(mark, builder.scalar(Value::Kind::null, "")); }
  // An alias repeats what may be large; ten lines of them make a billion values. No generator writes any.
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { take(mark, builder.refuse("an alias (*)")); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t, const std::string& text) override {
    // "?": plain, "!": quoted
    take(mark, tag == "?" || tag == "!" || tag == "tag:yaml.org,2002:str"
                   ? builder.scalar(tag == "?" ? Value::Kind::word : Value::Kind::string, text)
                   : builder.refuse("the tag " + printable(tag)));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    take(mark, builder.begin(Value::Kind::list));
  }
  void OnSequenceEnd() override { take(mark_, builder.end()); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    take(mark, builder.begin(Value::Kind::map));
  }
  void OnMapEnd() override { take(mark_, builder.end()); }

 private:
  void take(const YAML::Mark& mark, bool taken) {
    mark_ = mark;
    if (!taken) throw Refused{mark};
  }
  YAML::Mark mark_;  ///< of the last event that has one
};

/// Reads from the caller's bytes, without a copy of them.
class Bytes final : public std::streambuf {
 public:
  explicit Bytes(std::string_view text) {
    char* begin = const_cast<char*>(text.data());  // never written to: nothing is ever put back
    setg(begin, begin, begin + text.size());
  }
};

std::string line_of(const YAML::Mark& mark) {
  return mark.line < 0 ? "" : "line " + std::to_string(mark.line + 1) + ": ";
}

}  // namespace

const Value* Value::find(std::string_view key) const {
  const auto found = std::find(keys.begin(), keys.end(), key);
  return found == keys.end() ? nullptr : &items[static_cast<size_t>(found - keys.begin())];
}

bool ValueBuilder::refuse(std::string message) {
  if (!refusal_) refusal_ = std::move(message);
  return false;
}

bool ValueBuilder::count() {
  if (refusal_) return false;
  return ++values_ <= kMostValues || refuse("more than " + std::to_string(kMostValues) + " values");
}

bool ValueBuilder::add(Value value) {
  if (open_.empty()) {
    if (root_) return refuse("more than one document");
    root_ = std::move(value);
    return true;
  }
  Frame& frame = open_.back();
  frame.value.items.push_back(std::move(value));
  frame.key_is_next = frame.value.kind == Value::Kind::map;
  return true;
}

bool ValueBuilder::add_key(std::string key) {
  Frame& frame = open_.back();
  if (frame.value.find(key) != nullptr) return refuse("\"" + printable(key) + "\" stands there twice");
  if (frame.value.keys.size() == kMostKeys) return refuse("more than " + std::to_string(kMostKeys) + " keys");
  frame.value.keys.push_back(std::move(key));
  frame.key_is_next = false;
  return true;
}

bool ValueBuilder::scalar(Value::Kind kind, std::string text) {
  if (!count()) return false;
  if (text.find('\0') != std::string::npos) return refuse("a NUL character");
  if (!open_.empty() && open_.back().key_is_next) {
    if (kind == Value::Kind::null) return refuse("a key is missing");
    return add_key(std::move(text));
  }
  return add({kind, std::move(text), {}, {}});
}

bool ValueBuilder::begin(Value::Kind kind) {
  if (!count()) return false;
  if (!open_.empty() && open_.back().key_is_next) return refuse("a key that is no text");
  if (open_.size() == kMostDepth) return refuse("nested deeper than " + std::to_string(kMostDepth) + " levels");
  open_.push_back({{kind, {}, {}, {}}, kind == Value::Kind::map});
  return true;
}

bool ValueBuilder::end() {
  if (refusal_) return false;
  Value value = std::move(open_.back().value);
  open_.pop_back();
  return add(std::move(value));
}

Result<Value> ValueBuilder::finish() {
  if (refusal_) return fail(ErrorKind::corrupt, *refusal_);
  if (!root_) return fail(ErrorKind::corrupt, "empty");
  return std::move(*root_);
}

Result<Value> read_json(std::string_view text) {
  JsonHandler handler;
  if (Json::sax_parse(text, &handler) || handler.builder.refusal()) return handler.builder.finish();
  const size_t end = std::min(handler.stopped_at, text.size());
  const auto lines = std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(end), '\n');
  return fail(ErrorKind::corrupt, "line " + std::to_string(lines + 1) + ": " + handler.problem);
}

Result<Value> read_yaml(std::string_view text) {
  YamlHandler handler;
  try {
    Bytes bytes(text);
    std::istream stream(&bytes);
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(handler)) {
    }
  } catch (const Refused& refused) {
    return fail(ErrorKind::corrupt, line_of(refused.mark) + handler.builder.refusal().value_or("not readable"));
  } catch (const YAML::Exception& error) {
    return fail(ErrorKind::corrupt, line_of(error.mark) + "not YAML: " + printable(error.msg));
  }
  return handler.builder.finish();
}

}  // namespace situla::cdi
