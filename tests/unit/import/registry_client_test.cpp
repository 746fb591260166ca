// Does the client find an image and log in where it must, and does every failure say what to do?
#include "hooks/registry/registry_client.hpp"

#include <catch2/catch.hpp>

#include "hooks/registry/sha256.hpp"
#include "tests/unit/import/fake_transport.hpp"

using namespace situla;
using test::Answer;
using test::FakeTransport;

namespace {

const std::string kManifest =
    "{\"schemaVersion\":2,\"config\":{\"digest\":\"" + digest_of("{}").text() + "\",\"size\":2},\"layers\":[]}";
const std::string kIndex =
    "{\"manifests\":[{\"digest\":\"" + digest_of(kManifest).text() +
    "\",\"size\":1,\"platform\":{\"os\":\"linux\",\"architecture\":\"arm64\",\"variant\":\"v8\"}}]}";

Result<ResolvedImage> resolve(FakeTransport& transport, const std::string& image,
                              const CredentialSet& credentials = {}) {
  RegistryClient::Options options;
  options.sleep = [](std::chrono::milliseconds) {};
  options.token_servers = {{"registry.test", "tokens.test"}};
  RegistryClient client(transport, ImageReference::parse(image).value(), credentials, options);
  return client.resolve(Platform::parse("arm64").value());
}

CredentialSet credentials_of(const std::string& host) {
  CredentialSet set;
  set.add({host, "joe", "s3cret"});
  return set;
}

}  // namespace

TEST_CASE("a manifest, with all types asked for") {
  FakeTransport transport([](const HttpRequest&) {
    return Answer{200, {{"docker-content-digest", digest_of(kManifest).text()}}, kManifest, false};
  });
  const auto image = resolve(transport, "registry.test/a/b:1");
  REQUIRE(image);
  CHECK(image->digest == digest_of(kManifest));
  REQUIRE(transport.requests.size() == 1);
  CHECK(transport.requests[0].url == "https://registry.test/v2/a/b/manifests/1");
  for (const char* type : {"oci.image.index.v1", "oci.image.manifest.v1", "docker.distribution.manifest.v2",
                           "docker.distribution.manifest.list.v2"})
    CHECK(transport.requests[0].accept.find(type) != std::string::npos);
}

TEST_CASE("a name server that is busy for a moment is asked again, and not for long") {
  int asked = 0;
  FakeTransport busy([&](const HttpRequest&) {
    return ++asked < 3 ? Answer{200, {}, "", true, ErrorKind::unreachable} : Answer{200, {}, kManifest, false};
  });
  CHECK(resolve(busy, "registry.test/x"));
  FakeTransport gone([](const HttpRequest&) { return Answer{200, {}, "", true, ErrorKind::unreachable}; });
  CHECK(resolve(gone, "registry.test/x").error().kind() == ErrorKind::unreachable);
  CHECK(gone.requests.size() == 3);
}

TEST_CASE("with ENROOT_ALLOW_HTTP a registry that speaks TLS is asked by nothing else, however slow it is") {
  for (const bool speaks_tls : {true, false}) {
    FakeTransport transport([&](const HttpRequest& request) {
      if (!request.url.ends_with("/v2/")) return Answer{200, {}, kManifest, false};
      if (request.speaks_tls != nullptr) *request.speaks_tls = speaks_tls;
      return Answer{200, {}, "", true, ErrorKind::network};
    });
    RegistryClient::Options options;
    options.sleep = [](std::chrono::milliseconds) {};
    options.allow_http = true;
    RegistryClient client(transport, ImageReference::parse("registry.test/x").value(), {}, options);
    CHECK(client.resolve(Platform::parse("arm64").value()));
    CHECK(transport.requests.back().url.starts_with(speaks_tls ? "https://" : "http://"));
  }
}

TEST_CASE("an index leads to the platform's manifest, whose digest is checked") {
  FakeTransport transport([](const HttpRequest& request) {
    return Answer{200, {}, request.url.ends_with("/latest") ? kIndex : kManifest, false};
  });
  CHECK(resolve(transport, "registry.test/x")->digest == digest_of(kManifest));
  CHECK(transport.requests[1].url == "https://registry.test/v2/x/manifests/" + digest_of(kManifest).text());
  // For nodes of whatever platforms.
  FakeTransport named([](const HttpRequest&) { return Answer{200, {}, kIndex, false}; });
  const CredentialSet nobody;
  RegistryClient client(named, ImageReference::parse("registry.test/x").value(), nobody, {});
  CHECK(client.named_digest().value() == digest_of(kIndex));
  CHECK(named.requests.size() == 1);
  FakeTransport liar([](const HttpRequest& request) {
    return Answer{200, {}, request.url.ends_with("/latest") ? kIndex : kManifest + " ", false};
  });
  const auto image = resolve(liar, "registry.test/x");
  REQUIRE_FALSE(image);
  CHECK(image.error().kind() == ErrorKind::corrupt);
}

TEST_CASE("schema 1 is refused for what it is, though its digest leaves out its signatures") {
  const auto error = [](const std::string& type) {
    FakeTransport transport([&](const HttpRequest&) {
      return Answer{200,
                    {{"content-type", type}, {"docker-content-digest", digest_of("payload").text()}},
                    R"({"schemaVersion":1,"fsLayers":[],"history":[],"signatures":[]})",
                    false};
    });
    const auto image = resolve(transport, "registry.test/old:1");
    return image ? "no error" : image.error().text();
  };
  for (const char* type : {"application/vnd.docker.distribution.manifest.v1+prettyjws",
                           "application/vnd.docker.distribution.manifest.v1+json"})
    CHECK_THAT(error(type), Catch::Contains("Docker schema 1 is not supported [image-unsupported]\nhint: ") &&
                                Catch::Contains("skopeo copy"));
}

TEST_CASE("tags come in pages, and a page's word for the next one leads nowhere else") {
  const auto list = [](FakeTransport& transport) {
    RegistryClient::Options options;
    options.sleep = [](std::chrono::milliseconds) {};
    const CredentialSet none;
    RegistryClient client(transport, ImageReference::parse("registry.test/a/b:1").value(), none, options);
    return client.list_tags();
  };
  const auto page = [](const std::string& tags, const std::string& next) {
    Answer answer{200, {}, R"({"name":"a/b","tags":[)" + tags + "]}", false};
    if (!next.empty()) answer.headers.emplace_back("link", "<" + next + ">; rel=\"next\"");
    return answer;
  };
  FakeTransport transport([&](const HttpRequest& request) {
    return request.url.ends_with("?n=1000")
               ? page(R"("1","2",7,"a b","\\u001b[2J")", "https://registry.test/v2/a/b/tags/list?last=2&n=1000")
               : page(R"("3")", "");
  });
  CHECK(list(transport).value() == std::vector<std::string>{"1", "2", "3"});
  CHECK(transport.requests[1].url == "https://registry.test/v2/a/b/tags/list?last=2&n=1000");
  // Not to another host, nor another repository of this one; and one that only turns in circles is left.
  for (const char* next : {"https://evil.test/v2/c/tags/list?n=1", "/v2/a/b/manifests/1"}) {
    FakeTransport elsewhere([&](const HttpRequest&) { return page(R"("1")", next); });
    CHECK(list(elsewhere).value() == std::vector<std::string>{"1"});
  }
  FakeTransport other_host([&](const HttpRequest& request) {
    return request.url.ends_with("?n=1000") ? page(R"("1")", "https://evil.test/v2/a/b/tags/list?last=1")
                                            : page("", "");
  });
  CHECK(list(other_host));
  CHECK(other_host.requests[1].url == "https://registry.test/v2/a/b/tags/list?last=1");
  FakeTransport empty([&](const HttpRequest&) { return page("", "/v2/a/b/tags/list?last=1"); });
  CHECK(list(empty).value().empty());
  CHECK(empty.requests.size() == 1);
  FakeTransport none([](const HttpRequest&) { return Answer{200, {}, R"({"name":"a/b","tags":null})", false}; });
  CHECK(list(none).value().empty());
  FakeTransport broken([](const HttpRequest&) { return Answer{200, {}, "<html>", false}; });
  CHECK(list(broken).error().kind() == ErrorKind::corrupt);
}

TEST_CASE("by digest, nothing else is accepted") {
  FakeTransport transport([](const HttpRequest&) { return Answer{200, {}, kManifest, false}; });
  CHECK(resolve(transport, "registry.test/x@" + digest_of(kManifest).text()));
  CHECK_FALSE(resolve(transport, "registry.test/x@" + digest_of("other").text()));
}

TEST_CASE("basic login with the credentials of the host") {
  const auto answer = [](const HttpRequest& request) {
    if (request.authorization == "Basic am9lOnMzY3JldA==") return Answer{200, {}, kManifest, false};
    return Answer{401, {{"www-authenticate", "Basic realm=\"x\""}}, "", false};
  };
  FakeTransport transport(answer);
  CHECK(resolve(transport, "auth.test:5000/x", credentials_of("auth.test")));
  CHECK(transport.requests[0].authorization.empty());
  const auto none = resolve(transport, "auth.test/x", credentials_of("other.test"));
  REQUIRE_FALSE(none);
  CHECK(none.error().kind() == ErrorKind::denied);
  CHECK(none.error().code() == ErrorCode::registry_login);
  CHECK(none.error().hint().find("machine auth.test login") != std::string::npos);
  CredentialSet wrong;
  wrong.add({"auth.test", "joe", "wr0ng"});
  const auto refused = resolve(transport, "auth.test/x", wrong);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code() == ErrorCode::registry_login);
  CHECK(refused.error().text().find("joe") != std::string::npos);
  CHECK(refused.error().text().find("wr0ng") == std::string::npos);
  CHECK_FALSE(resolve(transport, "ann@auth.test/x", credentials_of("auth.test")));
}

TEST_CASE("bearer tokens come from the realm, with the realm's credentials") {
  const auto answer = [](const HttpRequest& request) {
    if (request.url.starts_with("https://tokens.test/")) {
      const bool known = request.authorization == "Basic am9lOnMzY3JldA==";
      return Answer{200, {}, known ? "{\"token\":\"full\"}" : "{\"token\":\"anonymous\"}", false};
    }
    if (request.authorization == "Bearer full") return Answer{200, {}, kManifest, false};
    if (!request.authorization.empty())
      return Answer{403, {}, "{\"errors\":[{\"code\":\"DENIED\",\"message\":\"no pull\"}]}", false};
    return Answer{
        401,
        {{"www-authenticate", "Bearer realm=\"https://tokens.test/t\",service=\"s\",scope=\"repository:x:pull\""}},
        "",
        false};
  };
  FakeTransport transport(answer);
  CHECK(resolve(transport, "registry.test/x", credentials_of("tokens.test")));
  CHECK(transport.requests[1].url == "https://tokens.test/t?service=s&scope=repository%3Ax%3Apull&account=joe");
  // The registry's own password is never sent to a server the registry names.
  FakeTransport other(answer);
  const auto denied = resolve(other, "registry.test/x", credentials_of("registry.test"));
  REQUIRE_FALSE(denied);
  CHECK(denied.error().message() == "manifest: access is forbidden (403), the registry says: no pull");
  for (const HttpRequest& request : other.requests) CHECK(request.authorization.find("Basic") == std::string::npos);
}

TEST_CASE("a registry that names another's token server and repository gets no token of the login there") {
  const auto answer = [](const HttpRequest& request) {
    if (request.url.starts_with("https://tokens.test/")) return Answer{200, {}, "{\"token\":\"t\"}", false};
    if (request.authorization == "Bearer t") return Answer{200, {}, kManifest, false};
    return Answer{401,
                  {{"www-authenticate",
                    "Bearer realm=\"https://tokens.test/t\",service=\"s\",scope=\"repository:private/x:pull\""}},
                  "",
                  false};
  };
  FakeTransport transport(answer);
  const auto refused = resolve(transport, "evil.test/x", credentials_of("tokens.test"));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().kind() == ErrorKind::denied);
  CHECK(refused.error().hint().find("ENROOT_TOKEN_SERVERS=evil.test=tokens.test") != std::string::npos);
  CHECK(transport.requests.size() == 1);
  // As nobody it may ask there, for what was asked of it.
  FakeTransport anonymous(answer);
  CHECK(resolve(anonymous, "evil.test/x"));
  CHECK(anonymous.requests[1].url == "https://tokens.test/t?service=s&scope=repository%3Ax%3Apull");
  CHECK(anonymous.requests[1].authorization.empty());
  // The same login written for both: it gets that by asking for Basic.
  CredentialSet both = credentials_of("tokens.test");
  both.add({"evil.test", "joe", "s3cret"});
  FakeTransport known(answer);
  CHECK(resolve(known, "evil.test/x", both));
  CredentialSet other = credentials_of("tokens.test");
  other.add({"evil.test", "joe", "another"});
  CHECK_FALSE(resolve(known, "evil.test/x", other));
}

TEST_CASE("a login of Docker's files belongs to the registry, and goes to the token server it names") {
  CredentialSet set;
  Credential credential{"registry.test:5000", "joe", "s3cret"};
  credential.scope = Credential::Scope::registry;
  set.add(credential);
  const auto answer = [](const HttpRequest& request) {
    if (request.url.starts_with("https://tokens.test/")) {
      const bool known = request.authorization == "Basic am9lOnMzY3JldA==" ||
                         request.form ==
                             "grant_type=refresh_token&client_id=situla&service=s&"
                             "scope=repository%3Ax%3Apull&refresh_token=re%2Ffresh";
      return Answer{known ? 200 : 401, {}, "{\"access_token\":\"full\"}", false};
    }
    if (request.authorization == "Bearer full") return Answer{200, {}, kManifest, false};
    return Answer{401, {{"www-authenticate", "Bearer realm=\"https://tokens.test/t\",service=\"s\""}}, "", false};
  };
  FakeTransport transport(answer);
  CHECK(resolve(transport, "registry.test:5000/x", set));
  CHECK_FALSE(resolve(transport, "registry.test/x", set));
  CHECK_FALSE(resolve(transport, "ann@registry.test:5000/x", set));
  CHECK(resolve(transport, "joe@registry.test:5000/x", set));

  CredentialSet tokens;
  credential.password = "re/fresh";
  credential.identity_token = true;
  tokens.add(credential);
  FakeTransport oauth(answer);
  CHECK(resolve(oauth, "registry.test:5000/x", tokens));
  REQUIRE(oauth.requests.size() == 3);
  CHECK(oauth.requests[1].url == "https://tokens.test/t");
  CHECK(oauth.requests[1].authorization.empty());
  tokens = CredentialSet();
  credential.password = "stale";
  tokens.add(credential);
  const auto refused = resolve(oauth, "registry.test:5000/x", tokens);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message() == "token server tokens.test: refuses the identity token (401)");
  CHECK(refused.error().hint().find("no longer valid") != std::string::npos);

  // What the user wrote for the token server's host counts first.
  tokens.add({"tokens.test", "joe", "s3cret"});
  CHECK(resolve(oauth, "registry.test:5000/x", tokens));
}

TEST_CASE("failures are told apart") {
  struct Case {
    Answer answer;
    ErrorKind kind;
    ErrorCode code;
    std::string part;
  };
  for (const Case& expected : std::vector<Case>{
           {{404, {}, "{\"errors\":[{\"code\":\"NAME_UNKNOWN\",\"message\":\"repository name not known\"}]}", false},
            ErrorKind::not_found,
            ErrorCode::image_not_found,
            "no such image"},
           {{404, {}, "{\"errors\":[{\"code\":\"BLOB_UNKNOWN\"}]}", false},
            ErrorKind::not_found,
            ErrorCode::image_damaged,
            "does not have it (404)"},
           {{404, {}, "", false}, ErrorKind::not_found, ErrorCode::image_not_found, "not found (404)"},
           {{403, {}, "", false}, ErrorKind::denied, ErrorCode::registry_login, "forbidden (403)"},
           {{429, {}, "", false}, ErrorKind::network, ErrorCode::registry_busy, "too many requests"},
           {{500, {}, "", false}, ErrorKind::network, ErrorCode::registry_busy, "the registry failed (500)"},
           {{418, {}, "", false}, ErrorKind::failure, ErrorCode::registry_answer, "unexpected status 418"},
           {{200, {}, "<html>", false}, ErrorKind::corrupt, ErrorCode::registry_answer, "not JSON"},
           {{401, {{"www-authenticate", "Negotiate"}}, "", false},
            ErrorKind::unsupported,
            ErrorCode::registry_answer,
            "neither Basic nor Bearer"},
       }) {
    FakeTransport transport([&](const HttpRequest&) { return expected.answer; });
    const auto image = resolve(transport, "registry.test/x");
    REQUIRE_FALSE(image);
    INFO(image.error().text());
    CHECK(image.error().kind() == expected.kind);
    CHECK(image.error().code() == expected.code);
    CHECK(image.error().message().find(expected.part) != std::string::npos);
    const bool transient = is_transient_status(expected.answer.status);
    CHECK(transport.requests.size() == (transient ? 1 + kLeastRetries : 1));
  }
}

TEST_CASE("a mirror that names somebody's token server gets no token of his login there") {
  const auto answer = [](const HttpRequest& request) {
    if (request.url.starts_with("https://tokens.test/"))
      return Answer{
          200,
          {},
          R"({"token":"for-)" + (request.authorization.empty() ? "all" : request.authorization.substr(6)) + "\"}",
          false};
    if (request.authorization == "Bearer for-all") return Answer{200, {}, kManifest, false};
    return Answer{401, {{"www-authenticate", "Bearer realm=\"https://tokens.test/\""}}, "", false};
  };
  RegistryClient::Options options;
  options.sleep = [](std::chrono::milliseconds) {};
  options.stands_in = true;
  const auto ask = [&](FakeTransport& transport, const CredentialSet& credentials) {
    RegistryClient client(transport, ImageReference::parse("mirror.test/x").value(), credentials, options);
    return client.resolve(Platform::parse("arm64").value());
  };
  FakeTransport transport(answer);
  CHECK(ask(transport, credentials_of("tokens.test")));
  // Its own login it does get, whatever the server that it names.
  FakeTransport own(answer);
  CHECK_FALSE(ask(own, credentials_of("mirror.test")));
  CHECK(own.requests.back().authorization == "Bearer for-" + basic_authorization("joe", "s3cret").substr(6));
}

TEST_CASE("whoever waits for a busy registry hears until when") {
  unsigned asked = 0;
  FakeTransport transport([&](const HttpRequest&) {
    ++asked;
    if (asked == 1) return Answer{503, {{"retry-after", "4"}}, "", false};
    return asked == 2 ? Answer{200, {}, "", true} : Answer{200, {}, kManifest, false};
  });
  std::vector<std::string> said;
  RegistryClient::Options options;
  options.sleep = [](std::chrono::milliseconds) {};
  options.waiting = [&](const std::string& why) {
    if (!why.empty() || said.empty() || !said.back().empty()) said.push_back(why);
  };
  const CredentialSet none;
  RegistryClient client(transport, ImageReference::parse("registry.test/x").value(), none, options);
  CHECK(client.resolve(Platform::parse("arm64").value()));
  REQUIRE(said.size() == 5);
  CHECK_THAT(said[1], Catch::Matches("answer 503, trying again in [4-6] s"));
  CHECK(said[3] == "no answer, trying again in 1 s");
  CHECK((said[0].empty() && said[2].empty() && said[4].empty()));
}

// before: four requests within two seconds, and at the same moments on all nodes
TEST_CASE("a busy registry is asked for two minutes, one that is gone for seconds; a refusal is final") {
  std::chrono::milliseconds slept{0};
  RegistryClient::Options options;
  options.limits = RetryLimits::of(ImportSettings());
  options.sleep = [&](std::chrono::milliseconds time) { slept += time; };
  const CredentialSet none;
  const auto ask = [&](const Answer& answer) {
    slept = {};
    FakeTransport transport([&](const HttpRequest&) { return answer; });
    RegistryClient client(transport, ImageReference::parse("registry.test/x").value(), none, options);
    CHECK_FALSE(client.resolve(Platform::parse("arm64").value()));
    return transport.requests.size();
  };
  for (const long status : {429L, 500L, 503L}) {
    const size_t requests = ask({status, {}, "", false});
    CHECK((requests > 12 && requests < 35));
    CHECK((slept >= std::chrono::seconds(120) && slept < std::chrono::seconds(136)));
  }
  CHECK(ask({503, {{"retry-after", "50"}}, "", false}) == 4);
  ask({200, {}, "", true, ErrorKind::unreachable});
  CHECK((slept >= std::chrono::seconds(2) && slept < std::chrono::seconds(7)));
  CHECK(ask({404, {}, "", false}) == 1);
  CHECK(ask({403, {}, "", false}) == 1);
}

TEST_CASE("insecure is one registry, not its token server") {
  FakeTransport transport([](const HttpRequest& request) {
    if (request.url.starts_with("https://tokens.test/")) return Answer{200, {}, R"({"token":"t"})", false};
    if (request.authorization == "Bearer t") return Answer{200, {}, kManifest, false};
    return Answer{401, {{"www-authenticate", "Bearer realm=\"https://tokens.test/\""}}, "", false};
  });
  RegistryClient::Options options;
  options.insecure = true;
  const CredentialSet none;
  RegistryClient client(transport, ImageReference::parse("registry.test/x").value(), none, options);
  CHECK(client.resolve(Platform::parse("arm64").value()));
  REQUIRE(transport.requests.size() == 3);
  for (const HttpRequest& request : transport.requests)
    CHECK(request.insecure == request.url.starts_with("https://registry.test/"));
}

TEST_CASE("a registry gets no token for another repository by the realm it names") {
  for (const char* realm : {"https://tokens.test/t?service=s&scope=repository:private/x:pull#",
                            "https://tokens.test/t?scope=repository:private/x:pull", "https://tokens.test/t#"}) {
    FakeTransport transport([&](const HttpRequest& request) {
      if (request.url.starts_with("https://tokens.test/")) return Answer{200, {}, R"({"token":"t"})", false};
      if (request.authorization == "Bearer t") return Answer{200, {}, kManifest, false};
      return Answer{
          401, {{"www-authenticate", "Bearer realm=\"" + std::string(realm) + "\",service=\"s\""}}, "", false};
    });
    const auto refused = resolve(transport, "registry.test/x", credentials_of("tokens.test"));
    REQUIRE_FALSE(refused);
    CHECK_THAT(refused.error().message(), Catch::Contains("query or a fragment"));
    CHECK(transport.requests.size() == 1);
  }
}

TEST_CASE("a token that would end its header line is refused") {
  for (const char* token : {R"(t\r\nX-Other: y)", R"(t\n)", R"(a b)", R"(t\u0000)", R"(t\u00e9)", R"(t\u007f)"}) {
    FakeTransport transport([&](const HttpRequest& request) {
      if (request.url.starts_with("https://tokens.test/"))
        return Answer{200, {}, R"({"token":")" + std::string(token) + "\"}", false};
      if (!request.authorization.empty()) return Answer{200, {}, kManifest, false};
      return Answer{401, {{"www-authenticate", "Bearer realm=\"https://tokens.test/\""}}, "", false};
    });
    const auto refused = resolve(transport, "registry.test/x");
    REQUIRE_FALSE(refused);
    CHECK_THAT(refused.error().message(), Catch::Contains("tokens.test: its token has"));
    CHECK(transport.requests.size() == 2);
  }
}

TEST_CASE("what is small must come in time, a layer may take as long as it takes") {
  FakeTransport transport([](const HttpRequest&) { return Answer{200, {}, kManifest, false}; });
  CHECK(resolve(transport, "registry.test/x"));
  CHECK(transport.requests[0].time_limit == 120);
  const CredentialSet none;
  const RegistryClient client(transport, ImageReference::parse("registry.test/x").value(), none, {});
  CHECK(client.blob_request(digest_of("x")).time_limit == 0);
}

// before: https://authn.nvidia.com/token?service=ngc, a token for all of NGC's API that the login may use
TEST_CASE("a token is for the registry's own service, where its pair is known") {
  struct Row {
    const char *registry, *realm, *named, *asked;
  };
  for (const Row& row : std::vector<Row>{
           {"registry-1.docker.io", "https://auth.docker.io/token", "other", "service=registry.docker.io&"},
           {"nvcr.io", "https://authn.nvidia.com/token", "ngc", "service=registry&"},
           {"registry.gitlab.com", "https://gitlab.com/jwt/auth", "dependency_proxy", "service=container_registry&"},
           {"registry.test", "https://tokens.test/t", "any", "service=any&"},
           {"ghcr.io", "https://ghcr.io/token", "any", "service=any&"},
       }) {
    INFO(row.registry);
    const std::string realm = row.realm, host = host_of_url(realm);
    for (const bool own : {false, true}) {
      CredentialSet credentials;
      credentials.add(
          {own ? row.registry : host, "joe", "s3cret", own ? Credential::Scope::registry : Credential::Scope::host});
      FakeTransport transport([&](const HttpRequest& request) {
        if (request.url.starts_with(realm)) return Answer{200, {}, R"({"token":"t"})", false};
        if (request.authorization == "Bearer t") return Answer{200, {}, kManifest, false};
        return Answer{
            401, {{"www-authenticate", "Bearer realm=\"" + realm + "\",service=\"" + row.named + "\""}}, "", false};
      });
      CHECK(resolve(transport, std::string(row.registry) + "/x", credentials));
      REQUIRE(transport.requests.size() == 3);
      CHECK_FALSE(transport.requests[1].authorization.empty());
      CHECK_THAT(transport.requests[1].url, Catch::Contains(row.asked));
    }
  }
}

// before: the message had 8,134 characters
TEST_CASE("what a registry says makes no long message") {
  const std::string words(8000, 'x');
  for (const Answer& answer : std::vector<Answer>{
           {200, {{"docker-content-digest", "sha256:" + words}}, kManifest, false},
           {200, {{"content-type", words}}, "<html>", false},
           {200, {}, R"({"mediaType":")" + words + "\"}", false},
           {200, {}, R"({"layers":[],"config":{"digest":"sha256:)" + words + "\"}}", false},
           {200, {}, R"({"layers":[],"config":{"digest":")" + words + "\"}}", false},
           {403, {}, R"({"errors":[{"code":"DENIED","message":")" + words + "\"}]}", false},
           {401, {{"www-authenticate", "Bearer realm=\"" + words + "\""}}, "", false},
           {401, {{"www-authenticate", "Bearer realm=\"https://" + words + "/\""}}, "", false},
           {401, {{"www-authenticate", "Bearer realm=\"https://x.test/?" + words + "\""}}, "", false},
       }) {
    FakeTransport transport([&](const HttpRequest&) { return answer; });
    for (const CredentialSet& credentials : {CredentialSet(), credentials_of("x.test"), credentials_of(words)}) {
      const auto refused = resolve(transport, "registry.test/x", credentials);
      REQUIRE_FALSE(refused);
      INFO(refused.error().text());
      CHECK(refused.error().message().size() < 1000);
      CHECK(refused.error().hint().size() < 1000);
    }
  }
}
