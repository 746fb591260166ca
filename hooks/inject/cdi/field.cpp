#include "hooks/inject/cdi/field.hpp"

#include <algorithm>
#include <charconv>

#include "common/base/text.hpp"

namespace situla::cdi {
namespace {

/// As YAML 1.1 and 1.2 write numbers: 432, 0x1b0, 0660, 0o660.
std::optional<uint64_t> parse_number(std::string_view text) {
  int base = 10;
  if (text.starts_with("0x") || text.starts_with("0o")) {
    base = text[1] == 'x' ? 16 : 8;
    text.remove_prefix(2);
  } else if (text.size() > 1 && text[0] == '0') {
    base = 8;
    text.remove_prefix(1);
  }
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

std::string Field::place() const {
  std::string text = parent == nullptr ? "" : parent->place();
  if (index) return text + "[" + std::to_string(*index) + "]";
  if (!text.empty() && !name.empty()) text += ".";
  return text + printable(name);
}

std::optional<Field> Field::find(std::string_view key) const {
  const Value* found = value.find(key);
  if (found == nullptr || found->kind == Value::Kind::null) return std::nullopt;
  return Field{*found, this, key, std::nullopt};
}

Error wrong(const Field& field, std::string_view message) {
  const std::string place = field.place();
  return {ErrorKind::corrupt, (place.empty() ? "" : place + ": ") + std::string(message)};
}

Result<std::string> text_of(const Field& field) {
  if (field.value.kind != Value::Kind::string && field.value.kind != Value::Kind::word)
    return fail(wrong(field, "not a text"));
  return field.value.text;
}

Result<uint64_t> number_of(const Field& field, uint64_t most) {
  const auto value = field.value.kind == Value::Kind::word ? parse_number(field.value.text) : std::nullopt;
  if (!value || *value > most) return fail(wrong(field, "not a number from 0 to " + std::to_string(most)));
  return *value;
}

Map::Map(const Field& field, std::initializer_list<std::string_view> known) : field_(field) {
  if (field.value.kind != Value::Kind::map) refuse(wrong(field, "not a map"));
  for (size_t i = 0; i < field.value.keys.size(); ++i) {
    const std::string& key = field.value.keys[i];
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    refuse(wrong({field.value.items[i], &field, key, std::nullopt}, "unknown field")
               .with_code(ErrorCode::cdi)
               .with_hint(suggestion(key, {known.begin(), known.size()}, "known fields")));
  }
}

Field Map::child(std::string_view key) const {
  static const Value nothing;
  const Value* value = field_.value.find(key);
  return {value == nullptr ? nothing : *value, &field_, key, std::nullopt};
}

std::string Map::text(std::string_view key) {
  const auto field = find(key);
  return field ? take(text_of(*field)) : "";
}

std::string Map::required_text(std::string_view key) {
  std::string found = text(key);
  if (found.empty()) refuse(wrong(child(key), "missing"));
  return found;
}

std::optional<uint64_t> Map::number(std::string_view key, uint64_t most) {
  const auto field = find(key);
  return field ? std::optional(take(number_of(*field, most))) : std::nullopt;
}

void Map::check_boolean(std::string_view key) {
  const auto field = find(key);
  const bool is_word = field && field->value.kind == Value::Kind::word;
  if (field && (!is_word || (field->value.text != "true" && field->value.text != "false")))
    refuse(wrong(*field, "neither true nor false"));
}

}  // namespace situla::cdi
