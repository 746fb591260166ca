// Are the logins of docker, podman and their helpers found as those tools find them?
#include "hooks/request/docker_config.hpp"

#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "hooks/registry/auth.hpp"
#include "tests/support/memory_log.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

/// `{"auth": "..."}` of login:password.
std::string auth(const std::string& pair) {
  const size_t colon = pair.find(':');
  return R"({"auth":")" + basic_authorization(pair.substr(0, colon), pair.substr(colon + 1)).substr(6) + "\"}";
}

struct Logins {
  test::MemoryLog log;
  std::vector<std::string> asked;

  std::string login(const std::string& json, const std::string& authority, const std::string& repository = "a/b") {
    const auto helper = [this](const std::string& name,
                               const std::string& server) -> Result<std::optional<Credential>> {
      asked.push_back(name + " " + server);
      if (name == "none") return std::nullopt;
      if (name == "broken") return fail(ErrorKind::failure, "the command exited with return code 2");
      return Credential{{}, name == "token" ? "<token>" : "helped", "s3cret"};
    };
    const auto found = find_docker_credential(json, "F", {authority, repository}, helper, log);
    if (!found) return "";
    CHECK(found->scope == Credential::Scope::registry);
    CHECK(found->host == authority);
    return found->identity_token ? "token " + found->password : found->login + ":" + found->password;
  }
};

}  // namespace

TEST_CASE_METHOD(Logins, "keys of auths, as the tools write them") {
  for (const char* key : {"r.test", "https://r.test", "http://r.test/v1/", "https://r.test/v2/", "r.test/", "R.test"})
    CHECK(login("{\"auths\":{\"" + std::string(key) + "\":" + auth("joe:p:w") + "}}", "r.test") == "joe:p:w");
  for (const char* key : {"r.test:5000", "x.r.test", "r.tes", "r.test/a/bc"})
    CHECK(login("{\"auths\":{\"" + std::string(key) + "\":" + auth("joe:p") + "}}", "r.test").empty());
  CHECK(login("{\"auths\":{\"r.test:5000\":" + auth("joe:p") + "}}", "r.test:5000") == "joe:p");
  CHECK(login("{\"auths\":{\"[::1]:5000\":" + auth("joe:p") + "}}", "[::1]:5000") == "joe:p");
  for (const char* key : {"https://index.docker.io/v1/", "docker.io", "index.docker.io", "registry-1.docker.io"})
    CHECK(login("{\"auths\":{\"" + std::string(key) + "\":" + auth("hub:p") + "}}", "registry-1.docker.io") == "hub:p");
}

TEST_CASE_METHOD(Logins, "the longest path counts") {
  const std::string json = "{\"auths\":{\"r.test\":" + auth("host:p") + ",\"r.test/team\":" + auth("team:p") +
                           ",\"r.test/team/image\":" + auth("image:p") + "}}";
  CHECK(login(json, "r.test", "other") == "host:p");
  CHECK(login(json, "r.test", "teammate/x") == "host:p");
  CHECK(login(json, "r.test", "team/x") == "team:p");
  CHECK(login(json, "r.test", "team/image") == "image:p");
}

TEST_CASE_METHOD(Logins, "identity tokens, old entries, entries that a helper left empty") {
  CHECK(login(R"({"auths":{"r.test":{"auth":"am9lOg==","identitytoken":"T"}}})", "r.test") == "token T");
  CHECK(login(R"({"auths":{"r.test":{"username":"u","password":"p"}}})", "r.test") == "u:p");
  CHECK(login(R"({"auths":{"r.test":{}}})", "r.test").empty());
  CHECK(log.text().empty());
}

TEST_CASE_METHOD(Logins, "helpers: the host's own, then the store, then auths; only for this registry") {
  const std::string auths = ",\"auths\":{\"r.test\":" + auth("file:p") + "}}";
  CHECK(login(R"({"credHelpers":{"r.test":"mine","o.test":"other"},"credsStore":"all")" + auths, "r.test") ==
        "helped:s3cret");
  CHECK(asked == std::vector<std::string>{"mine r.test"});
  asked.clear();
  CHECK(login(R"({"credHelpers":{"o.test":"other"},"credsStore":"token")" + auths, "r.test") == "token s3cret");
  CHECK(asked == std::vector<std::string>{"token r.test"});
  CHECK(login(R"({"credsStore":"none")" + auths, "r.test") == "file:p");
  CHECK(log.text().empty());
  CHECK(login(R"({"credsStore":"broken")" + auths, "r.test") == "file:p");
  CHECK(log.text().find("docker-credential-broken gives no login for r.test") != std::string::npos);
  asked.clear();
  CHECK_FALSE(login(R"({"credsStore":"all"})", "registry-1.docker.io").empty());
  CHECK(asked == std::vector<std::string>{"all https://index.docker.io/v1/"});
}

TEST_CASE_METHOD(Logins, "damaged files warn and show nothing") {
  for (const char* json : {"secret", "[\"secret\"]", R"({"auths":{"r.test":{"auth":"secret!"}}})",
                           R"({"auths":{"r.test":{"auth":"secret"}}})", R"({"auths":[],"credHelpers":3})",
                           R"({"auths":{"r.test":"secret"},"credHelpers":{"r.test":["secret"]},"credsStore":{}})"})
    CHECK(login(json, "r.test").empty());
  CHECK(log.text().find("not a JSON object") != std::string::npos);
  CHECK(log.text().find("damaged") != std::string::npos);
  CHECK(log.text().find("secret") == std::string::npos);
}

TEST_CASE("a helper is a program in PATH that is asked on its standard input and has limited time") {
  const test::TempDir directory;
  const auto script = [&](const std::string& name, const std::string& body) {
    const std::string path = directory.path() + "/docker-credential-" + name;
    std::ofstream(path) << "#!/bin/sh\n" << body;
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  };
  script("good", R"(read -r server; printf '{"ServerURL":"x","Username":"%s-%s","Secret":"s"}' "$1" "$server")");
  script("unknown", "echo 'credentials not found in native keychain'; exit 1");
  script("fails", "echo s3cret; exit 2");
  script("garbage", "echo s3cret");
  script("hangs", "exec sleep 60");
  script("closes", "exec sleep 60 >&-");
  Environment environment;
  environment.set("PATH", "relative:" + directory.path() + ":/usr/bin:/bin");
  const CredentialHelper helper = helper_program(environment, std::chrono::seconds(60));
  CHECK(helper("good", "r.test").value()->login == "get-r.test");
  CHECK(helper("unknown", "r.test").value() == std::nullopt);
  for (const char* name : {"fails", "garbage", "missing", "../bad", ""}) {
    const auto answer = helper(name, "r.test");
    REQUIRE_FALSE(answer);
    CHECK(answer.error().text().find("s3cret") == std::string::npos);
  }
  const CredentialHelper impatient = helper_program(environment, std::chrono::milliseconds(1500));
  for (const char* name : {"hangs", "closes"}) {
    const auto begin = std::chrono::steady_clock::now();
    CHECK(impatient(name, "r.test").error().message().find("took more than 1 seconds") != std::string::npos);
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
  }
}

TEST_CASE("files and their order") {
  Environment environment;
  environment.set("HOME", "/h");
  environment.set("XDG_RUNTIME_DIR", "/r");
  CHECK(docker_config_files(environment) == std::vector<std::string>{"/r/containers/auth.json",
                                                                     "/h/.config/containers/auth.json",
                                                                     "/h/.docker/config.json"});
  const test::TempDir directory;
  environment.set("DOCKER_CONFIG", directory.path());
  environment.set("REGISTRY_AUTH_FILE", directory.path() + "/auth");
  std::ofstream(directory.path() + "/auth") << "{\"auths\":{\"a.test\":" << auth("first:p") << "}}";
  std::ofstream(directory.path() + "/config.json")
      << "{\"auths\":{\"a.test\":" << auth("second:p") << ",\"b.test\":" << auth("second:p") << "}}";
  CredentialSet set;
  test::MemoryLog log;
  collect_docker_credentials({{"a.test", "x"}, {"b.test", "x"}}, environment, set, log);
  REQUIRE(set.all().size() == 2);
  CHECK(set.find_registry("a.test", "")->login == "first");
  CHECK(set.find_registry("b.test", "")->login == "second");
  CHECK(set.find("a.test", "") == nullptr);
  CHECK(log.text().empty());
  environment.set("REGISTRY_AUTH_FILE", "/nonexistent/auth.json");
  collect_docker_credentials({{"c.test", "x"}}, environment, set, log);
  CHECK(log.text().find("/nonexistent/auth.json") != std::string::npos);
}
