// How do structures become JSON and come back, from one list of their fields? Reading is strict: every field, no other,
// each of its type.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "common/base/text.hpp"
#include "common/spec/json.hpp"

namespace situla::nvidia {

/// `void fields(auto& archive, Is<T> auto& it) { archive("one", it.one, "other", Path{it.other}); }` names the fields
/// of a T for a JsonWriter (const T) and a JsonReader.
template <typename X, typename T>
concept Is = std::same_as<std::remove_const_t<X>, T>;

/// An absolute path without ".." and control characters, or a relative one for what lies in another directory.
template <typename Text>
struct Path {
  Text& text;
};
template <typename Text>
Path(Text&) -> Path<Text>;

class JsonWriter {
 public:
  void operator()(const char* name, const auto& value, const auto&... more) {
    members_.push_back({name, to_json(value)});
    if constexpr (sizeof...(more) != 0) (*this)(more...);
  }

  template <typename T>
  static Json object(const T& item) {
    JsonWriter writer;
    fields(writer, item);
    return std::move(writer.members_);
  }

 private:
  template <typename T>
  static Json to_json(const T& value) {
    if constexpr (std::same_as<T, std::string> || std::integral<T>)
      return value;
    else
      return object(value);
  }
  static Json to_json(const Path<const std::string>& path) { return path.text; }
  template <typename T>
  static Json to_json(const std::vector<T>& values) {
    Json::List list;
    for (const T& value : values) list.push_back(to_json(value));
    return list;
  }
  template <typename T>
  static Json to_json(const std::optional<T>& value) {
    return value ? to_json(*value) : Json();
  }

  Json::Members members_;
};

class JsonReader {
 public:
  /// ErrorKind::corrupt, with the place: "gpus[1].minor is not a number".
  template <typename T>
  static Result<T> object(const Json& json, const std::string& what) {
    T item;
    JsonReader reader(json, "");
    reader.read(item);
    if (!reader.wrong_.empty()) return fail(ErrorKind::corrupt, "read " + what + ": " + reader.wrong_);
    return item;
  }

  void operator()(const char* name, auto&& value, auto&&... more) {
    if (!wrong_.empty()) return;
    const Json* found = json_.find(name);
    if (found == nullptr) return refuse(place_ + name + " is missing");
    ++seen_;
    from_json(*found, value, place_ + name);
    if constexpr (sizeof...(more) != 0) (*this)(more...);
  }

  /// Makes the whole document invalid; the first reason counts.
  void refuse(std::string why) {
    if (wrong_.empty()) wrong_ = std::move(why);
  }

 private:
  JsonReader(const Json& json, std::string place) : json_(json), place_(std::move(place)) {}

  template <typename T>
  void read(T& item) {
    const Json::Members* members = json_.as_object();
    if (members == nullptr) return refuse((place_.empty() ? "the document" : place_) + " is no object");
    fields(*this, item);
    if (wrong_.empty() && seen_ != members->size()) refuse(place_ + " has unknown fields");
  }
  template <typename T>
  void from_json(const Json& json, T& value, const std::string& place) {
    JsonReader reader(json, place + ".");
    reader.read(value);
    if (!reader.wrong_.empty()) refuse(reader.wrong_);
  }
  void from_json(const Json& json, std::string& value, const std::string& place) {
    if (json.as_text() == nullptr) return refuse(place + " is no text");
    value = *json.as_text();
  }
  void from_json(const Json& json, Path<std::string>& path, const std::string& place) {
    from_json(json, path.text, place);
    if (!wrong_.empty()) return;
    const bool plain = path.text.find_first_of(kControl) == std::string::npos;
    bool climbs = false;
    for (const std::string_view part : split(path.text, '/')) climbs |= part == ".." && path.text.starts_with('/');
    if (!plain || climbs) refuse(place + " is no path");
  }
  void from_json(const Json& json, bool& value, const std::string& place) {
    if (!json.as_truth()) return refuse(place + " is neither true nor false");
    value = *json.as_truth();
  }
  template <std::unsigned_integral T>
  void from_json(const Json& json, T& value, const std::string& place) {
    const auto number = json.as_number();
    if (!number || *number > std::numeric_limits<T>::max()) return refuse(place + " is not a number, or too large");
    value = static_cast<T>(*number);
  }
  template <typename T>
  void from_json(const Json& json, std::vector<T>& values, const std::string& place) {
    const Json::List* items = json.as_list();
    if (items == nullptr) return refuse(place + " is no list");
    for (size_t i = 0; i < items->size() && wrong_.empty(); ++i)
      from_json((*items)[i], values.emplace_back(), place + "[" + std::to_string(i) + "]");
  }
  template <typename T>
  void from_json(const Json& json, std::optional<T>& value, const std::string& place) {
    if (json.is_null()) return value.reset();
    T item{};
    from_json(json, item, place);
    value = std::move(item);
  }

  static constexpr std::string_view kControl{
      "\0\x01\x02\x03\x04\x05\x06\x07\x08\t\n\x0b\x0c\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c"
      "\x1d\x1e\x1f\x7f",
      33};
  const Json& json_;
  std::string place_, wrong_;
  size_t seen_ = 0;
};

}  // namespace situla::nvidia
