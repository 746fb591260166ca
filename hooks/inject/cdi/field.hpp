// Is this part of a document what it has to be? Values with their place in it, read strictly.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hooks/inject/cdi/value.hpp"

namespace situla::cdi {

/// A value and where it is. Refers to the document and to its parent, which have to live longer.
struct Field {
  const Value& value;
  const Field* parent = nullptr;
  std::string_view name;        ///< in a map
  std::optional<size_t> index;  ///< in a list

  /// "devices[2].containerEdits.mounts[0].hostPath"
  [[nodiscard]] std::string place() const;
  /// Of a map; null is as good as missing.
  [[nodiscard]] std::optional<Field> find(std::string_view key) const;
};

/// "<place>: <message>", ErrorKind::corrupt
Error wrong(const Field& field, std::string_view message);

/// It is a map of these fields only; the hint names the one that was meant.
Result<void> check_fields(const Field& field, std::span<const std::string_view> known);
/// A field that has to be there, and not empty.
Result<std::string> required_text(const Field& map, std::string_view key);
/// "" when it is missing.
Result<std::string> optional_text(const Field& map, std::string_view key);
Result<uint64_t> number(const Field& field, uint64_t most);
Result<std::optional<uint64_t>> optional_number(const Field& map, std::string_view key, uint64_t most);
Result<void> check_boolean(const Field& map, std::string_view key);
Result<std::vector<std::string>> texts(const Field& map, std::string_view key);

/// Reads every item of a list that may be missing.
template <typename Item, typename Read>
Result<std::vector<Item>> items(const Field& map, std::string_view key, Read read) {
  std::vector<Item> all;
  const auto list = map.find(key);
  if (!list) return all;
  if (list->value.kind != Value::Kind::list) return fail(wrong(*list, "not a list"));
  all.reserve(list->value.items.size());
  for (size_t i = 0; i < list->value.items.size(); ++i) {
    TRY_ASSIGN(Item item, read(Field{list->value.items[i], &*list, {}, i}));
    all.push_back(std::move(item));
  }
  return all;
}

}  // namespace situla::cdi
