#include "common/spec/json.hpp"

#include <algorithm>
#include <numeric>

#include <nlohmann/json.hpp>

namespace situla {
namespace {

using Library = nlohmann::ordered_json;

/// From the library's events to the handler's.
class Events final : public nlohmann::json_sax<Library> {
 public:
  Events(JsonHandler& handler, size_t size) : handler_(handler), size_(size) {}

  bool null() override { return handler_.scalar({}); }
  bool boolean(bool truth) override { return handler_.scalar(truth); }
  bool number_integer(number_integer_t number) override { return handler_.scalar(number); }
  bool number_unsigned(number_unsigned_t number) override { return handler_.scalar(number); }
  bool number_float(number_float_t, const string_t& text) override { return handler_.scalar(Json::Decimal{text}); }
  bool string(string_t& text) override { return handler_.scalar(std::move(text)); }
  bool binary(binary_t&) override { return false; }  // other formats have it
  bool start_object(size_t) override { return handler_.begin_object(); }
  bool key(string_t& name) override { return handler_.name(std::move(name)); }
  bool end_object() override { return handler_.end(); }
  bool start_array(size_t) override { return handler_.begin_list(); }
  bool end_array() override { return handler_.end(); }
  bool parse_error(size_t position, const std::string& last, const nlohmann::detail::exception&) override {
    fault = JsonFault{std::min(position, size_), last};
    return false;
  }

  std::optional<JsonFault> fault;

 private:
  JsonHandler& handler_;
  size_t size_;  ///< of the text, bytes
};

/// Of those with one name the last value stays, where the first was.
void join_equal_names(Json::Members& members) {
  std::vector<size_t> order(members.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return members[a].name < members[b].name; });
  std::vector<bool> gone(members.size(), false);
  size_t first = 0;
  for (size_t i = 1; i < order.size(); ++i) {
    if (members[order[i]].name != members[order[first]].name) {
      first = i;
      continue;
    }
    members[order[first]].value = std::move(members[order[i]].value);
    gone[order[i]] = true;
  }
  size_t at = 0;
  std::erase_if(members, [&](const Json::Member&) { return gone[at++]; });
}

/// Puts a value together, within the bounds.
class Builder final : public JsonHandler {
 public:
  bool scalar(Json value) override { return count() && put(std::move(value)); }
  bool name(std::string text) override {
    if (!count()) return false;
    open_.back().members.push_back({std::move(text), {}});
    return true;
  }
  bool begin_list() override { return begin(false); }
  bool begin_object() override { return begin(true); }
  bool end() override {
    Frame frame = std::move(open_.back());
    open_.pop_back();
    if (!frame.is_object) return put(std::move(frame.items));
    join_equal_names(frame.members);
    return put(std::move(frame.members));
  }

  Json root;
  std::string refusal;

 private:
  struct Frame {
    bool is_object = false;
    Json::List items;
    Json::Members members;
  };

  bool begin(bool is_object) {
    if (open_.size() == kMostJsonDepth) return refuse("nested more than " + std::to_string(kMostJsonDepth) + " deep");
    open_.push_back({is_object, {}, {}});
    return count();
  }
  bool put(Json value) {
    if (open_.empty())
      root = std::move(value);
    else if (open_.back().is_object)
      open_.back().members.back().value = std::move(value);
    else
      open_.back().items.push_back(std::move(value));
    return true;
  }
  bool count() {
    return ++values_ <= kMostJsonValues || refuse("more than " + std::to_string(kMostJsonValues) + " values");
  }
  bool refuse(std::string why) {
    refusal = std::move(why);
    return false;
  }

  std::vector<Frame> open_;
  size_t values_ = 0;
};

}  // namespace

/// The library's form of a value, for writing it.
class JsonDocument {
 public:
  static Library from(const Json& json) {
    return std::visit([](const auto& value) { return convert(value); }, json.value_);
  }

 private:
  static Library convert(std::monostate) { return nullptr; }
  static Library convert(const Json::Decimal& number) { return Library::parse(number.text, nullptr, false); }
  static Library convert(const Json::List& items) {
    Library list = Library::array();
    for (const Json& item : items) list.push_back(from(item));
    return list;
  }
  static Library convert(const Json::Members& members) {
    Library::object_t object;
    // Not its own emplace(), which looks through all of them for the name.
    for (const auto& [name, value] : members) object.Library::object_t::Container::emplace_back(name, from(value));
    return object;
  }
  static Library convert(const auto& value) { return value; }
};

std::string to_text(const Json& json, JsonLayout layout) {
  std::string text = JsonDocument::from(json).dump(layout.indent, ' ', layout.ascii, Library::error_handler_t::replace);
  return layout.indent < 0 ? text : text + "\n";
}

std::optional<JsonFault> parse_json(std::string_view text, JsonHandler& handler) {
  Events events(handler, text.size());
  Library::sax_parse(text, &events);
  return std::move(events.fault);
}

Result<Json> parse_json(std::string_view text) {
  Builder builder;
  if (parse_json(text, builder)) return fail(ErrorKind::corrupt, "not JSON");
  if (!builder.refusal.empty()) return fail(ErrorKind::corrupt, builder.refusal);
  return std::move(builder.root);
}

Json Json::object(std::initializer_list<Member> members) {
  return Json(Members(members));
}

void Json::add(std::string name, Json value) {
  if (is_null()) value_ = Members();
  std::get<Members>(value_).push_back({std::move(name), std::move(value)});
}

void Json::add(Json item) {
  std::get<List>(value_).push_back(std::move(item));
}

std::optional<uint64_t> Json::as_number() const {
  if (const auto* number = std::get_if<uint64_t>(&value_)) return *number;
  const auto* number = std::get_if<int64_t>(&value_);
  return number != nullptr && *number >= 0 ? std::optional(static_cast<uint64_t>(*number)) : std::nullopt;
}

std::string Json::word() const {
  if (const auto* truth = std::get_if<bool>(&value_)) return *truth ? "true" : "false";
  if (const auto* number = std::get_if<int64_t>(&value_)) return std::to_string(*number);
  if (const auto* number = std::get_if<uint64_t>(&value_)) return std::to_string(*number);
  if (const auto* number = std::get_if<Decimal>(&value_)) return number->text;
  return {};
}

std::optional<bool> Json::as_truth() const {
  const auto* truth = std::get_if<bool>(&value_);
  return truth != nullptr ? std::optional(*truth) : std::nullopt;
}

const Json* Json::find(std::string_view name) const {
  const Members* members = as_object();
  if (members == nullptr) return nullptr;
  const auto found = std::find_if(members->begin(), members->end(), [&](const Member& it) { return it.name == name; });
  return found == members->end() ? nullptr : &found->value;
}

std::string Json::text(std::string_view name) const {
  const Json* value = find(name);
  return value != nullptr && value->as_text() != nullptr ? *value->as_text() : std::string();
}

std::vector<std::string> Json::texts(std::string_view name) const {
  std::vector<std::string> texts;
  for (const Json& item : items(name))
    if (item.as_text() != nullptr) texts.push_back(*item.as_text());
  return texts;
}

const Json::Members& Json::members(std::string_view name) const {
  static const Members kNone;
  const Json* value = find(name);
  return value != nullptr && value->as_object() != nullptr ? *value->as_object() : kNone;
}

const Json::List& Json::items(std::string_view name) const {
  static const List kNone;
  const Json* value = find(name);
  return value != nullptr && value->as_list() != nullptr ? *value->as_list() : kNone;
}

}  // namespace situla
