#include "hooks/inject/cdi/field.hpp"

#include <algorithm>
#include <charconv>

#include "common/base/text.hpp"

namespace situla::cdi {
namespace {

Result<std::string> text_of(const Field& field) {
  if (field.value.kind != Value::Kind::string && field.value.kind != Value::Kind::word)
    return fail(wrong(field, "not a text"));
  return field.value.text;
}

/// As YAML 1.1 and 1.2 write numbers: 432, 0x1b0, 0660, 0o660.
std::optional<uint64_t> number_of(std::string_view text) {
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

Result<void> check_fields(const Field& field, std::span<const std::string_view> known) {
  if (field.value.kind != Value::Kind::map) return fail(wrong(field, "not a map"));
  for (size_t i = 0; i < field.value.keys.size(); ++i) {
    const std::string& key = field.value.keys[i];
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    return fail(wrong({field.value.items[i], &field, key, std::nullopt}, "unknown field")
                    .with_hint(suggestion(key, known, "known fields")));
  }
  return {};
}

Result<std::string> required_text(const Field& map, std::string_view key) {
  TRY_ASSIGN(std::string text, optional_text(map, key));
  static const Value nothing;
  if (text.empty()) return fail(wrong({nothing, &map, key, std::nullopt}, "missing"));
  return text;
}

Result<std::string> optional_text(const Field& map, std::string_view key) {
  const auto field = map.find(key);
  return field ? text_of(*field) : std::string();
}

Result<uint64_t> number(const Field& field, uint64_t most) {
  const auto value = field.value.kind == Value::Kind::word ? number_of(field.value.text) : std::nullopt;
  if (!value || *value > most) return fail(wrong(field, "not a number from 0 to " + std::to_string(most)));
  return *value;
}

Result<std::optional<uint64_t>> optional_number(const Field& map, std::string_view key, uint64_t most) {
  const auto field = map.find(key);
  if (!field) return std::nullopt;
  TRY_ASSIGN(const uint64_t value, number(*field, most));
  return value;
}

Result<void> check_boolean(const Field& map, std::string_view key) {
  const auto field = map.find(key);
  if (!field) return {};
  if (field->value.kind != Value::Kind::word || (field->value.text != "true" && field->value.text != "false"))
    return fail(wrong(*field, "neither true nor false"));
  return {};
}

Result<std::vector<std::string>> texts(const Field& map, std::string_view key) {
  return items<std::string>(map, key, text_of);
}

}  // namespace situla::cdi
