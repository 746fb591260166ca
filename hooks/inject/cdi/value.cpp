#include "hooks/inject/cdi/value.hpp"

#include <algorithm>
#include <utility>

#include "common/base/text.hpp"

namespace situla::cdi {

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

}  // namespace situla::cdi
