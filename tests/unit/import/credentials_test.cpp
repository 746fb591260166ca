// Is .credentials read as COMPAT.md 3 says, and are passwords kept out of messages?
#include "hooks/request/credentials.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "tests/support/memory_log.hpp"

using namespace situla;

namespace {

Result<CredentialSet> parse(std::string_view text, test::MemoryLog& log) {
  return parse_credentials(
      text, "F",
      [](const std::string& password) -> Result<std::string> {
        if (password == "$FAIL") return fail(ErrorKind::failure, "the command exited with return code 3");
        return "<" + password + ">";
      },
      log);
}

}  // namespace

TEST_CASE("netrc forms") {
  test::MemoryLog log;
  const auto set = parse(
      "# a comment\n"
      "machine nvcr.io login $oauthtoken password key#1\n"
      "machine authn.nvidia.com\n\tlogin $oauthtoken\n\tpassword \"with blank \\\" quote\"\n"
      "machine gcr.io login oauth2accesstoken password $(gcloud auth print-access-token (x))\n"
      "machine h login a password 1 machine h login b password 2  # machine h login c\n"
      "default login anonymous password x\n",
      log);
  REQUIRE(set);
  REQUIRE(set->all().size() == 5);
  CHECK(*set->find("nvcr.io", "") == Credential{"nvcr.io", "$oauthtoken", "key#1"});
  CHECK(set->find("authn.nvidia.com", "$oauthtoken")->password == "with blank \" quote");
  CHECK(set->find("gcr.io", "")->password == "<$(gcloud auth print-access-token (x))>");
  CHECK(set->find("h", "")->password == "1");
  CHECK(set->find("h", "b")->password == "2");
  CHECK(set->find("h", "c") == nullptr);
  CHECK(set->find("other", "") == nullptr);
}

TEST_CASE("a password that cannot be expanded loses its entry only, and is not shown") {
  test::MemoryLog log;
  const auto set = parse("machine a login u password $FAIL\nmachine b login u password p\n", log);
  REQUIRE(set);
  CHECK(set->find("a", "") == nullptr);
  CHECK(set->find("b", "") != nullptr);
  CHECK(log.text().find("u at a") != std::string::npos);
  CHECK(log.text().find("$FAIL") == std::string::npos);
}

TEST_CASE("mistakes do not show passwords") {
  test::MemoryLog log;
  for (const char* text : {"login x", "machine", "machine a login u password my secret", "machine a login"}) {
    const auto set = parse(text, log);
    REQUIRE_FALSE(set);
    CHECK(set.error().kind() == ErrorKind::usage);
    CHECK(set.error().code() == ErrorCode::credentials);
    CHECK(set.error().text().find("secret") == std::string::npos);
  }
}

TEST_CASE("a mistake is said with its line, and the word where it is no piece of a password") {
  test::MemoryLog log;
  CHECK(parse("# one\nmachine a\n  login b\n\n  pasword c\n", log).error().text() ==
        "F:5: unknown word 'pasword' [credentials]\nhint: did you mean password?");
  CHECK(parse("machine a login b password \"x\ny\" machin c", log).error().text() ==
        "F:2: unknown word 'machin' [credentials]\nhint: did you mean machine?");
  CHECK_THAT(parse("machine a login b password my Passw0rd", log).error().text(),
             Catch::StartsWith("F:1: a word that is none of") && !Catch::Contains("Passw0rd"));
  CHECK_THAT(parse("\nlogin b", log).error().text(), Catch::StartsWith("F:2: 'login' before any"));
}

TEST_CASE("collected as the user, with a shell for $ passwords") {
  const auto directory = std::filesystem::temp_directory_path() / ("situla-credentials-" + std::to_string(getpid()));
  std::filesystem::create_directories(directory);
  std::ofstream(directory / ".credentials") << "machine a login $oauthtoken password $(printf 's3 cret')\n"
                                               "machine b login u password $TOKEN\n"
                                               "machine c login u password $(exit 3)\n";
  Environment environment;
  environment.set("ENROOT_CONFIG_PATH", directory.string());
  environment.set("PATH", "/usr/bin:/bin");
  environment.set("TOKEN", "from environment");
  test::MemoryLog log;
  const auto config = EnrootConfig::load(environment, log);
  REQUIRE(config);
  const auto set = collect_credentials(*config, environment, log);
  REQUIRE(set);
  CHECK(set->find("a", "")->password == "s3 cret");
  CHECK(set->find("a", "")->login == "$oauthtoken");
  CHECK(set->find("b", "")->password == "from environment");
  CHECK(set->find("c", "") == nullptr);
  const auto mode = [&](unsigned bits) {
    std::filesystem::permissions(directory / ".credentials", static_cast<std::filesystem::perms>(bits));
    test::MemoryLog warnings;
    REQUIRE(collect_credentials(*config, environment, warnings));
    return warnings.count(LogLevel::warning, "can be written by other users: chmod 600 ");
  };
  CHECK(mode(0666) == 1);
  CHECK(mode(0644) == 0);
  CHECK(mode(0600) == 0);
  std::filesystem::remove_all(directory);
  CHECK(collect_credentials(*config, environment, log)->all().empty());
}
