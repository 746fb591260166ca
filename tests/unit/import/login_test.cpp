// Which token server may be asked with a login, for which registry?
#include "hooks/registry/login.hpp"

#include <array>

#include <catch2/catch.hpp>

#include "hooks/sources/origin.hpp"

using namespace situla;

namespace {

AskingRegistry registry(const std::string& authority, bool verified = true, const std::string& scheme = "https://") {
  return {authority, verified, scheme + authority};
}

bool allowed(const std::string& authority, const std::string& realm, const std::vector<TokenServer>& agreed = {},
             SecretOf secret = SecretOf::token_server) {
  return LoginFor::token_server(registry(authority), realm, secret, agreed).has_value();
}

}  // namespace

TEST_CASE("registries and the token servers that they name") {
  struct Row {
    const char *registry, *realm;
    bool good;
  };
  const std::array<Row, 26> rows = {{
      {"registry-1.docker.io", "https://auth.docker.io/token", true},
      {"docker.io", "https://auth.docker.io/token", true},
      {"index.docker.io", "https://auth.docker.io/token", true},
      {"nvcr.io", "https://authn.nvidia.com/token", true},
      {"nvcr.io", "https://nvcr.io/proxy_auth?scope=repository:nvidia/x:pull", true},
      {"registry.gitlab.com", "https://gitlab.com/jwt/auth", true},
      {"gitlab.example.com:5050", "https://gitlab.example.com/jwt/auth", true},
      {"ghcr.io", "https://ghcr.io/token", true},
      {"quay.io", "https://quay.io/v2/auth", true},
      {"harbor.example.com", "https://harbor.example.com/service/token", true},
      {"site.azurecr.io", "https://site.azurecr.io/oauth2/token", true},
      {"europe-docker.pkg.dev", "https://europe-docker.pkg.dev/v2/token", true},
      {"gcr.io", "https://gcr.io/v2/token", true},
      {"public.ecr.aws", "https://public.ecr.aws/token/", true},
      {"Registry.Test", "https://registry.test:443/t", true},
      {"evil.test", "https://auth.docker.io/token", false},
      {"evil.test", "https://authn.nvidia.com/token", false},
      {"evil.test", "https://gitlab.com/jwt/auth", false},
      {"nvcr.io", "https://auth.docker.io/token", false},
      {"registry.example.com", "https://gitlab.example.com/jwt/auth", false},
      {"nvcr.io.evil.test", "https://authn.nvidia.com/token", false},
      {"evil.test:443", "https://nvcr.io/proxy_auth", false},
      {"nvcr.io", "https://authn.nvidia.com.evil.test/token", false},
      {"nvcr.io", "https://authn.nvidia.com:8443/token", false},
      {"nvcr.io", "http://authn.nvidia.com/token", false},
      {"registry.test", "http://registry.test/token", false},
  }};
  for (const Row& row : rows) {
    INFO(row.registry << " names " << row.realm);
    CHECK(allowed(row.registry, row.realm) == row.good);
  }
}

TEST_CASE("pairs that somebody wrote down") {
  const auto pairs = parse_token_servers("registry.test=auth.test *.lab.test=gitlab.lab.test:8443").value();
  CHECK(allowed("registry.test", "https://auth.test/t", pairs));
  CHECK(allowed("registry.test:5000", "https://auth.test/t", pairs));
  CHECK_FALSE(allowed("registry.test", "https://auth.test:8443/t", pairs));
  CHECK(allowed("a.lab.test", "https://gitlab.lab.test:8443/jwt", pairs));
  CHECK_FALSE(allowed("a.lab.test", "https://gitlab.lab.test/jwt", pairs));
  CHECK_FALSE(allowed("lab.test", "https://gitlab.lab.test:8443/jwt", pairs));
  CHECK_FALSE(allowed("other.test", "https://auth.test/t", pairs));
  CHECK_FALSE(allowed("registry.test", "http://auth.test/t", pairs));
  for (const char* text : {"a", "=b", "a=", "a=b c"}) CHECK_FALSE(parse_token_servers(text));
  CHECK(parse_token_servers("")->empty());
  const auto refused = LoginFor::token_server(registry("evil.test"), "https://auth.test/t", SecretOf::token_server, {});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().kind() == ErrorKind::denied);
  CHECK(refused.error().hint().find("ENROOT_TOKEN_SERVERS=evil.test=auth.test ") != std::string::npos);
  const auto other_port =
      LoginFor::token_server(registry("registry.test"), "https://auth.test:8443/t", SecretOf::token_server, pairs);
  REQUIRE_FALSE(other_port);
  CHECK(other_port.error().hint().find("ENROOT_TOKEN_SERVERS=registry.test=auth.test:8443 ") != std::string::npos);
}

TEST_CASE("what is the registry's own goes where it says, but not without TLS") {
  CHECK(allowed("registry.test", "https://auth.test/t", {}, SecretOf::registry));
  CHECK_FALSE(allowed("registry.test", "http://auth.test/t", {}, SecretOf::registry));
}

TEST_CASE("another port of a host that no certificate vouches for is another place") {
  const auto at = [](const AskingRegistry& asking, const char* realm) {
    return LoginFor::token_server(asking, realm, SecretOf::token_server, {}).has_value();
  };
  CHECK_FALSE(at(registry("host.test:5000", false), "https://host.test/t"));
  CHECK_FALSE(at(registry("host.test:5000", false, "http://"), "https://host.test/t"));
  CHECK(at(registry("host.test:5000", false), "https://host.test:5000/t"));
  CHECK(at(registry("host.test:5000", false, "http://"), "http://host.test:5000/t"));
  const auto agreed = [](const AskingRegistry& asking, const std::string& pairs) {
    return LoginFor::token_server(asking, "https://auth.test/t", SecretOf::token_server,
                                  parse_token_servers(pairs).value())
        .has_value();
  };
  CHECK(agreed(registry("host.test", false), "host.test=auth.test"));
  CHECK(agreed(registry("host.test", false, "http://"), "host.test=auth.test"));
  CHECK_FALSE(agreed(registry("host.test:5000", false), "host.test=auth.test"));
  CHECK_FALSE(agreed(registry("host.test:5000", false, "http://"), "*.test=auth.test"));
  CHECK(agreed(registry("host.test:5000", false), "host.test:5000=auth.test"));
}

TEST_CASE("a login is put into requests to its own place only") {
  const LoginFor login = LoginFor::itself(registry("registry.test"));
  HttpRequest request;
  request.url = "https://registry.test:444/v2/";
  CHECK_FALSE(login.add({"registry.test", "a", "b"}, request));
  CHECK_FALSE(login.add_form("secret", request));
  CHECK(request.authorization.empty());
  CHECK(request.form.empty());
  request.url = "https://registry.test/v2/";
  CHECK(login.add({"registry.test", "a", "b"}, request));
  CHECK(request.authorization == "Basic YTpi");
}

TEST_CASE("an origin is the request's alone, and names what vouches for it") {
  ImportRequest request;
  request.image = "docker://registry.test/team/x:1";
  CHECK(origin_of(request).value() == Origin{"registry.test", "team/x"});
  request.settings.https_proxy = "http://proxy.test:1";
  request.settings.ssl_cert_file = "/any/name.pem";
  CHECK(origin_of(request)->registry == "registry.test");
  request.settings.trust.pem = "one";
  const std::string one = origin_of(request)->registry;
  request.settings.ssl_cert_file = "/another/name.pem";
  CHECK(origin_of(request)->registry == one);
  CHECK(one.starts_with("registry.test as the certificates sha256:"));
  request.settings.trust.pem = "two";
  CHECK(origin_of(request)->registry != one);
  request.settings.trust = {};
  request.settings.allow_http = true;
  const std::string open = origin_of(request)->registry;
  CHECK(open.starts_with("registry.test without proof by sha256:"));
  request.settings.https_proxy.clear();
  CHECK(origin_of(request)->registry == "registry.test without proof");
  request.settings.allow_http = false;
  request.rules = {{"registry.test", "", true, false, {}, ""}};
  CHECK(origin_of(request)->registry == "registry.test without proof");
}
