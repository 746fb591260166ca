// Are WWW-Authenticate challenges understood?
#include "hooks/import/auth.hpp"

#include <catch2/catch.hpp>

using namespace situla;

TEST_CASE("bearer is preferred, whatever the order and case") {
  const auto challenge = choose_challenge(
      {"Basic realm=\"x\"",
       "BEARER Realm=\"https://auth.test/token\",service=\"a \\\"b\\\", c\", scope=\"repository:x:pull\""});
  REQUIRE(challenge);
  CHECK(challenge->scheme == "bearer");
  CHECK(challenge->parameters.at("realm") == "https://auth.test/token");
  CHECK(challenge->parameters.at("service") == "a \"b\", c");
  CHECK(choose_challenge({"Negotiate"}) == std::nullopt);
  CHECK(choose_challenge({"basic realm=x"})->parameters.at("realm") == "x");
}

TEST_CASE("token URLs") {
  Challenge challenge{"bearer", {{"realm", "https://auth.test/token?a=1"}, {"service", "reg test"}}};
  CHECK(token_url(challenge, "repository:x/y:pull", "joe", false).value() ==
        "https://auth.test/token?a=1&service=reg%20test&scope=repository%3Ax%2Fy%3Apull&account=joe");
  challenge.parameters["realm"] = "http://auth.test/token";
  CHECK_FALSE(token_url(challenge, "", "", false));
  CHECK(token_url(challenge, "", "", true).value() == "http://auth.test/token?service=reg%20test");
  for (const char* realm :
       {"https://auth.test@evil.test/", "https://auth.test\\@evil.test/", "https://", "https:///t"}) {
    challenge.parameters["realm"] = realm;
    CHECK_FALSE(token_url(challenge, "", "", true));
  }
  challenge.parameters["realm"] = "file:///etc/passwd";
  CHECK_FALSE(token_url(challenge, "", "", true));
}

TEST_CASE("basic authorization is base64") {
  CHECK(basic_authorization("a", "b") == "Basic YTpi");
  CHECK(basic_authorization("Aladdin", "open sesame") == "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
  CHECK(basic_authorization("ab", "c") == "Basic YWI6Yw==");
}

TEST_CASE("hosts of URLs") {
  CHECK(host_of_url("https://user:pw@auth.test:443/token") == "auth.test");
  CHECK(host_of_url("https://[::1]:443/x") == "::1");
}

TEST_CASE("base64 is decoded, with and without padding") {
  CHECK(decode_base64("YTpi") == "a:b");
  CHECK(decode_base64("QWxhZGRpbjpvcGVuIHNlc2FtZQ==") == "Aladdin:open sesame");
  CHECK(decode_base64("YWI6Yw") == "ab:c");
  CHECK(decode_base64("/+8=") == "\xff\xef");
  CHECK(decode_base64("") == "");
  for (const char* text : {"a", "a=b=", "YTpi\n", "-_"}) CHECK(decode_base64(text) == std::nullopt);
}
