// What does a JSON document say, and how is one written? For programs, not for the plugin. The library behind it is
// included by json.cpp alone: its header takes five seconds of processor wherever it is read.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/result.hpp"

namespace situla {

/// Of an object. A template, because a value holds them.
template <typename Value>
struct JsonMember {
  std::string name;
  Value value;
};

/// One value (RFC 8259). Names keep the order of the document.
class Json {
 public:
  using Member = JsonMember<Json>;
  using List = std::vector<Json>;
  using Members = std::vector<Member>;
  /// A number that is not whole, as it was written.
  struct Decimal {
    std::string text;
  };

  Json() = default;  ///< null
  Json(std::same_as<bool> auto truth) : value_(truth) {}
  Json(std::signed_integral auto number) : value_(int64_t{number}) {}
  Json(std::unsigned_integral auto number) requires(!std::same_as<decltype(number), bool>) : value_(uint64_t{number}) {}
  Json(Decimal number) : value_(std::move(number)) {}
  Json(std::string text) : value_(std::move(text)) {}
  Json(std::string_view text) : value_(std::string(text)) {}
  Json(const char* text) : value_(std::string(text)) {}
  Json(List items) : value_(std::move(items)) {}
  Json(Members members) : value_(std::move(members)) {}
  template <typename T>
  Json(const std::vector<T>& items);
  /// Null for none.
  template <typename T>
  Json(const std::optional<T>& item);

  /// {"name":"","size":0} is object({{"name", ""}, {"size", 0}}). No name may stand there twice.
  static Json object(std::initializer_list<Member> members);
  /// An object of pairs: a map, a vector of them.
  static Json object_of(const auto& pairs);
  static Json list() { return Json(List()); }
  /// At the end of an object or a list; the name is a new one.
  void add(std::string name, Json value);
  void add(Json item);

  /// Null for every other kind of value.
  [[nodiscard]] const List* as_list() const { return std::get_if<List>(&value_); }
  [[nodiscard]] const Members* as_object() const { return std::get_if<Members>(&value_); }
  [[nodiscard]] const std::string* as_text() const { return std::get_if<std::string>(&value_); }
  /// A whole number that is not negative.
  [[nodiscard]] std::optional<uint64_t> as_number() const;
  [[nodiscard]] std::optional<bool> as_truth() const;
  /// Of a number or a truth value; empty for others.
  [[nodiscard]] std::string word() const;
  [[nodiscard]] bool is_null() const { return std::holds_alternative<std::monostate>(value_); }

  /// Null when this is no object or has no such member.
  [[nodiscard]] const Json* find(std::string_view name) const;
  /// Empty when there is no such member or it is something else.
  [[nodiscard]] std::string text(std::string_view name) const;
  /// Those of a list; what else is in it is left out.
  [[nodiscard]] std::vector<std::string> texts(std::string_view name) const;
  [[nodiscard]] const List& items(std::string_view name) const;
  [[nodiscard]] const Members& members(std::string_view name) const;

 private:
  friend class JsonDocument;
  std::variant<std::monostate, bool, int64_t, uint64_t, Decimal, std::string, List, Members> value_;
};

struct JsonLayout {
  int indent = 2;      ///< of each level, characters; -1: one line, which does not end
  bool ascii = false;  ///< every other character is escaped
};

/// Bytes that are no UTF-8 become U+FFFD: names of files may be any bytes, and a reader of JSON wants UTF-8.
std::string to_text(const Json& json, JsonLayout layout = {});

constexpr size_t kMostJsonDepth = 64;
constexpr size_t kMostJsonValues = 100'000;  ///< names are counted too; an honest configuration has some thousands

/// Of a name that stands in an object twice, the later value counts. ErrorKind::corrupt: "not JSON", or which bound the
/// document breaks; a stranger's byte of text can cost forty of memory.
Result<Json> parse_json(std::string_view text);

/// For those who keep another form of a document: what is in it, one after the other. False ends it.
class JsonHandler {
 public:
  virtual ~JsonHandler() = default;
  virtual bool scalar(Json value) = 0;
  virtual bool name(std::string text) = 0;
  virtual bool begin_list() = 0;
  virtual bool begin_object() = 0;
  virtual bool end() = 0;
};

struct JsonFault {
  size_t position = 0;  ///< bytes of the text before it
  std::string last;     ///< what was read last; empty at the end of the text
};

/// Nothing, when the handler ended it.
std::optional<JsonFault> parse_json(std::string_view text, JsonHandler& handler);

template <typename T>
Json::Json(const std::vector<T>& items) : value_(List(items.begin(), items.end())) {}

template <typename T>
Json::Json(const std::optional<T>& item) {
  if (item) *this = Json(*item);
}

Json Json::object_of(const auto& pairs) {
  Members members;
  for (const auto& [name, value] : pairs) members.push_back({name, Json(value)});
  return Json(std::move(members));
}

}  // namespace situla
