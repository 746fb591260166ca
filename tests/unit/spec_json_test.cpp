#include <map>
#include <string>

#include <catch2/catch.hpp>

#include "common/spec/json.hpp"

using namespace situla;

namespace {

std::string one_line(const Json& json) {
  return to_text(json, {.indent = -1});
}

std::string why_not(std::string_view text) {
  const auto json = parse_json(text);
  return json ? "" : json.error().message();
}

}  // namespace

TEST_CASE("json: what is read is written again, names in their order") {
  for (const char* text :
       {R"({"z":1,"a":[true,false,null,"x"],"m":{}})", "[]", "-3", "18446744073709551615", "0.25", R"("\u0001\"")"}) {
    const auto json = parse_json(text);
    REQUIRE(json);
    CHECK(one_line(*json) == text);
  }
  CHECK(to_text(Json::object({{"a", Json::list()}, {"b", 2}})) == "{\n  \"a\": [],\n  \"b\": 2\n}\n");
}

TEST_CASE("json: values of programs") {
  const std::map<std::string, std::string> pairs{{"b", "2"}, {"a", "1"}};
  Json json = Json::object({{"truth", true}, {"none", std::optional<int>()}, {"some", std::optional<int>(-1)}});
  json.add("list", std::vector<std::string>{"x", "y"});
  json.add("pairs", Json::object_of(pairs));
  CHECK(one_line(json) == R"({"truth":true,"none":null,"some":-1,"list":["x","y"],"pairs":{"a":"1","b":"2"}})");
  Json later;
  later.add("first", "makes it an object");
  CHECK(later.text("first") == "makes it an object");
}

TEST_CASE("json: bytes that are no UTF-8 are replaced, and others escaped where that is asked for") {
  CHECK(one_line(Json("\xff")) == "\"\xEF\xBF\xBD\"");
  CHECK(to_text(Json("\xC3\xA4"), {.indent = -1, .ascii = true}) == "\"\\u00e4\"");
}

TEST_CASE("json: members are asked for by type, and what is missing or another is nothing") {
  const auto json =
      parse_json(R"({"text":"a","number":7,"minus":-7,"half":0.5,"list":["a",1,"b"],"object":{"k":"v"}})");
  REQUIRE(json);
  CHECK(json->text("text") == "a");
  CHECK(json->text("number").empty());
  CHECK(json->text("absent").empty());
  CHECK(json->find("number")->as_number() == 7);
  CHECK(json->find("minus")->as_number() == std::nullopt);
  CHECK(json->find("half")->as_number() == std::nullopt);
  CHECK(json->find("half")->word() == "0.5");
  CHECK(json->texts("list") == std::vector<std::string>{"a", "b"});
  CHECK(json->texts("text").empty());
  CHECK(json->items("object").empty());
  CHECK(json->members("object").front().value.text("k").empty());
  CHECK(json->members("object").front().name == "k");
  CHECK(Json("a").find("a") == nullptr);
}

TEST_CASE("json: of equal names the last value counts, where the first stood") {
  const auto json = parse_json(R"({"a":1,"b":2,"a":3,"c":4,"b":5,"a":6})");
  REQUIRE(json);
  CHECK(one_line(*json) == R"({"a":6,"b":5,"c":4})");
}

TEST_CASE("json: what is none, and what is too much") {
  for (const char* text : {"", "{", "{\"a\"}", "[1,]", "nul", "1 2", "{} x", "\"\xff\"", "\xEF\xBB"})
    CHECK(why_not(text) == "not JSON");
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  CHECK(why_not(nested(kMostJsonDepth)).empty());
  CHECK(why_not(nested(kMostJsonDepth + 1)) == "nested more than 64 deep");
  CHECK(why_not(std::string(1'000'000, '[')) == "nested more than 64 deep");
  std::string many = "[0";
  for (size_t i = 0; i < kMostJsonValues; ++i) many += ",0";
  CHECK(why_not(many + "]") == "more than 100000 values");
}
