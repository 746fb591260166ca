// What does a YAML or JSON document say? One value for both, small and without surprises: no aliases, no duplicates,
// bounded in depth and number.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"

namespace situla::cdi {

struct Value {
  enum class Kind : uint8_t {
    null,
    word,    ///< unquoted: number, truth value or, in YAML, text
    string,  ///< quoted
    list,    ///< items
    map      ///< items with their keys
  };
  Kind kind = Kind::null;
  std::string text;
  std::vector<Value> items;
  std::vector<std::string> keys;

  /// Of a map; nullptr when it is missing.
  [[nodiscard]] const Value* find(std::string_view key) const;
};

constexpr size_t kMostDocumentBytes = size_t{2} << 20U;  ///< 2000 IMEX channels are a third of a MiB
constexpr size_t kMostValues = 100'000;
constexpr size_t kMostKeys = 1024;  ///< of one map
constexpr size_t kMostDepth = 16;   ///< a specification needs seven

/// Puts a value together from what a parser reports, and refuses what is too much. After an error nothing more is
/// taken.
class ValueBuilder {
 public:
  /// In a map keys and values take turns.
  bool scalar(Value::Kind kind, std::string text);
  bool begin(Value::Kind kind);
  bool end();
  bool refuse(std::string message);
  [[nodiscard]] const std::optional<std::string>& refusal() const { return refusal_; }
  /// ErrorKind::corrupt
  Result<Value> finish();

 private:
  struct Frame {
    Value value;
    bool key_is_next = false;
  };
  bool add(Value value);
  bool add_key(std::string key);
  bool count();

  std::vector<Frame> open_;
  std::optional<Value> root_;
  std::optional<std::string> refusal_;
  size_t values_ = 0;
};

/// ErrorKind::corrupt, with the line: "line 12: ...".
Result<Value> read_json(std::string_view text);
Result<Value> read_yaml(std::string_view text);

}  // namespace situla::cdi
