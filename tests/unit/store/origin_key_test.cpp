// Have different origins different names?
#include <set>

#include <catch2/catch.hpp>

#include "hooks/store/image_store.hpp"

using namespace situla;

TEST_CASE("an origin's key is made of both of its parts, and of their border") {
  std::set<std::string> keys;
  for (const Origin& origin : {Origin{"registry.test", "debian"}, Origin{"registry.test", "debia"},
                               Origin{"auth.test", "debian"}, Origin{"registry.testd", "ebian"}}) {
    const std::string key = origin_key(origin);
    CHECK(key.size() == 32);
    CHECK(key.find_first_not_of("0123456789abcdef") == std::string::npos);
    CHECK(keys.insert(key).second);
    CHECK(origin_key(origin) == key);
  }
}
