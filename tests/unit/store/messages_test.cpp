// Do importer and store understand each other, and nothing else?
#include "hooks/store/messages.hpp"

#include <catch2/catch.hpp>

using namespace situla;

TEST_CASE("messages between importer and store arrive as they were sent") {
  const Digest digest = *Digest::parse_hex(std::string(64, 'a'));
  const auto found = store_line::decode(store_line::encode(store_line::FindLayer{digest, "zstd-131072"}));
  REQUIRE(found);
  const auto* layer = std::get_if<store_line::FindLayer>(&*found);
  REQUIRE(layer != nullptr);
  CHECK(layer->layer == digest);
  CHECK(layer->kind == "zstd-131072");
  const auto progressed = store_line::decode(store_line::encode(store_line::Progressed{uint64_t{1} << 40U, true}));
  REQUIRE(progressed);
  CHECK(std::get<store_line::Progressed>(*progressed).bytes == uint64_t{1} << 40U);
  CHECK(std::get<store_line::Progressed>(*progressed).finishing);
}

TEST_CASE("what is damaged, longer, shorter or of another version is refused") {
  const std::string good = store_line::encode(store_line::Built{12, "amd64"});
  REQUIRE(store_line::decode(good));
  for (size_t size = 0; size < good.size(); ++size) CHECK_FALSE(store_line::decode(good.substr(0, size)));
  CHECK_FALSE(store_line::decode(good + "x"));
  for (size_t i = 0; i < 5; ++i) {
    std::string other = good;
    other[i] = '\x7f';
    CHECK_FALSE(store_line::decode(other));
  }
  CHECK_FALSE(
      store_line::decode(store_line::encode(store_line::Built{12, std::string(5000, 'x')}) + std::string(5000, 'x')));
}
