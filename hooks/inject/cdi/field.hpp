// Is this part of a document what it has to be? Values with their place in it, read strictly.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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
Result<std::string> text_of(const Field& field);
Result<uint64_t> number_of(const Field& field, uint64_t most);

/// Reads a map. The first thing that is wrong counts, and finish() tells it; what is read after that is empty.
class Map {
 public:
  /// The map has these fields only; the hint names the one that was meant.
  Map(const Field& field, std::initializer_list<std::string_view> known);

  [[nodiscard]] std::optional<Field> find(std::string_view key) const { return field_.find(key); }
  /// Also one that is missing, for messages.
  [[nodiscard]] Field child(std::string_view key) const;

  std::string text(std::string_view key);           ///< "" when it is missing
  std::string required_text(std::string_view key);  ///< has to be there, and not empty
  std::optional<uint64_t> number(std::string_view key, uint64_t most);
  void check_boolean(std::string_view key);
  std::vector<std::string> texts(std::string_view key) { return items<std::string>(key, text_of); }
  /// Every item of a list that may be missing.
  template <typename Item, typename Read>
  std::vector<Item> items(std::string_view key, Read read) {
    std::vector<Item> all;
    const auto list = find(key);
    if (!list || error_) return all;
    if (list->value.kind != Value::Kind::list) refuse(wrong(*list, "not a list"));
    for (size_t i = 0; i < list->value.items.size() && !error_; ++i)
      all.push_back(take(Result<Item>(read(Field{list->value.items[i], &*list, {}, i}))));
    return all;
  }

  template <typename T>
  T take(Result<T> result) {
    if (result) return std::move(*result);
    refuse(std::move(result).error());
    return T();
  }
  void refuse(Error error) {
    if (!error_) error_ = std::move(error);
  }
  template <typename T>
  Result<T> finish(T value) {
    if (error_) return fail(std::move(*error_));
    return value;
  }

 private:
  const Field& field_;
  std::optional<Error> error_;
};

}  // namespace situla::cdi
