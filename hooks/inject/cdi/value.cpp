#include "hooks/inject/cdi/value.hpp"

#include <algorithm>
#include <istream>
#include <streambuf>
#include <utility>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include "common/base/text.hpp"
#include "common/spec/json.hpp"

namespace situla::cdi {
namespace {

class JsonValues final : public JsonHandler {
 public:
  ValueBuilder builder;

  bool scalar(Json value) override {
    if (value.as_text() != nullptr) return builder.scalar(Value::Kind::string, *value.as_text());
    return builder.scalar(value.is_null() ? Value::Kind::null : Value::Kind::word, value.word());
  }
  bool name(std::string text) override { return builder.scalar(Value::Kind::string, std::move(text)); }
  bool begin_list() override { return builder.begin(Value::Kind::list); }
  bool begin_object() override { return builder.begin(Value::Kind::map); }
  bool end() override { return builder.end(); }
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
  JsonValues values;
  const auto fault = parse_json(text, values);
  if (!fault) return values.builder.finish();
  const auto lines = std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(fault->position), '\n');
  const std::string problem =
      fault->last.empty() ? "ends too early" : "not JSON near \"" + printable(fault->last.substr(0, 40)) + "\"";
  return fail(ErrorKind::corrupt, "line " + std::to_string(lines + 1) + ": " + problem);
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
