// Are WWW-Authenticate challenges understood?
#include "hooks/registry/auth.hpp"

#include <catch2/catch.hpp>

#include "common/base/base64.hpp"

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

TEST_CASE("several challenges in one line") {
  const auto challenge =
      choose_challenge({R"(Negotiate, Basic realm="x, y", Bearer realm="https://t/token", service = r)"});
  REQUIRE(challenge);
  CHECK(challenge->scheme == "bearer");
  CHECK(challenge->parameter("realm") == "https://t/token");
  CHECK(challenge->parameter("service") == "r");
  CHECK(choose_challenge({"Negotiate dG9rZW4=, Basic realm=\"x\", charset=\"UTF-8\""})->parameter("charset") ==
        "UTF-8");
  CHECK(choose_challenge({"Basic"})->scheme == "basic");
  for (const char* nothing : {"", ",", "=", "==,", "=\"", " = x"}) CHECK(choose_challenge({nothing}) == std::nullopt);
}

TEST_CASE("token URLs") {
  Challenge challenge{"bearer", {{"realm", "https://auth.test/token"}, {"service", "reg test"}}};
  CHECK(token_url(challenge, "repository:x/y:pull", "joe", {}).value() ==
        "https://auth.test/token?service=reg%20test&scope=repository%3Ax%2Fy%3Apull&account=joe");
  challenge.parameters["realm"] = "http://auth.test/token";
  CHECK_FALSE(token_url(challenge, "", "", {}));
  CHECK(token_url(challenge, "", "", {.allow_http = true}).value() == "http://auth.test/token?service=reg%20test");
  for (const char* realm :
       {"https://auth.test@evil.test/", "https://auth.test\\@evil.test/", "https://", "https:///t"}) {
    challenge.parameters["realm"] = realm;
    CHECK_FALSE(token_url(challenge, "", "", {.allow_http = true}));
  }
  challenge.parameters["realm"] = "file:///etc/passwd";
  CHECK_FALSE(token_url(challenge, "", "", {.allow_http = true}));
}

TEST_CASE("a realm adds nothing to what a token server is asked, unless it is the registry") {
  Challenge challenge{"bearer", {{"service", "s"}}};
  const auto usable = [&](const std::string& realm, bool of_registry) {
    challenge.parameters["realm"] = realm;
    const RealmRules rules{false, of_registry};
    const bool url = token_url(challenge, "repository:x:pull", "", rules).has_value();
    CHECK(token_post(challenge, "repository:x:pull", "secret", rules).has_value() == url);
    return url;
  };
  for (const char* realm :
       {"https://auth.test/t#", "https://auth.test/t?scope=repository:private:pull#", "https://auth.test/t?a#b",
        "https://auth.test#", "https://auth.test/t\r\nx", "https://auth.test/ t"})
    for (const bool of_registry : {false, true}) CHECK_FALSE(usable(realm, of_registry));
  for (const char* realm :
       {"https://auth.test/t?scope=repository:private:pull", "https://auth.test?service=s", "https://auth.test/t?"})
    CHECK_FALSE(usable(realm, false));
  CHECK(usable("https://auth.test/t?a=1", true));
  CHECK(token_url(challenge, "repository:x:pull", "", {false, true}).value() ==
        "https://auth.test/t?a=1&service=s&scope=repository%3Ax%3Apull");
  for (const char* realm : {"https://auth.docker.io/token", "https://gitlab.com/jwt/auth", "https://nvcr.io/proxy_auth",
                            "https://authn.nvidia.com/token", "https://ghcr.io/token", "https://quay.io/v2/auth"})
    CHECK(usable(realm, false));
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
