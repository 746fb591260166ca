// How is a line of JSON written where no library is for it? By hand, in programs of root's.
#pragma once

#include <string>
#include <string_view>

#include "common/base/text.hpp"

namespace situla {

/// An object, or a list, whose members are added one after the other.
class JsonMembers {
 public:
  /// `value` is JSON already.
  void add(std::string_view name, std::string_view value) { put(json_quote(name) + ":" + std::string(value)); }
  /// Nothing for an empty text.
  void add_text(std::string_view name, std::string_view text) {
    if (!text.empty()) add(name, json_quote(text));
  }
  /// The same of a text whose lines stay lines.
  void add_lines(std::string_view name, std::string_view text) {
    if (text.empty()) return;
    std::string lines;
    for (const std::string_view line : split(text, '\n')) {
      const std::string quoted = json_quote(line);
      lines += (lines.empty() ? "" : "\\n") + quoted.substr(1, quoted.size() - 2);
    }
    add(name, '"' + lines + '"');
  }
  void add_number(std::string_view name, uint64_t number) { add(name, std::to_string(number)); }
  /// Of a list; JSON already.
  void put(std::string_view value) {
    if (!members_.empty()) members_ += ',';
    members_ += value;
  }
  [[nodiscard]] std::string object() const { return "{" + members_ + "}"; }
  [[nodiscard]] std::string list() const { return "[" + members_ + "]"; }

 private:
  std::string members_;
};

}  // namespace situla
