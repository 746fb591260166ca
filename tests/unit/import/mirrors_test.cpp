// Where is an image looked for under the rules of registries.conf and situla.toml?
#include "hooks/request/mirrors.hpp"

#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "hooks/request/registries_conf.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

/// "place place...", in the order of asking, or the error.
std::string places(const std::string& image, const std::string& rules) {
  const auto parsed = parse_registries_conf(rules, "r.conf");
  if (!parsed) return parsed.error().message();
  const auto endpoints = endpoints_of(ImageReference::parse(image).value(), *parsed);
  if (!endpoints) return endpoints.error().message();
  std::string text;
  for (const RegistryEndpoint& endpoint : *endpoints) {
    if (!text.empty()) text += " ";
    text += endpoint.reference.text();
    if (endpoint.insecure) text += "!";
    if (endpoint.stands_in) text += "?";
  }
  return text;
}

std::string error_of_rules(const std::string& rules) {
  const auto parsed = parse_registries_conf(rules, "r.conf");
  return parsed ? "" : parsed.error().message();
}

void write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

}  // namespace

TEST_CASE("a prefix covers what is beneath it") {
  CHECK(covered_by("example.com", "example.com/x:1") == 11);
  CHECK(covered_by("example.com", "example.com:5000/x:1") == 11);
  CHECK(covered_by("example.com", "example.community/x:1") == 0);
  CHECK(covered_by("example.com:5000", "example.com/x:1") == 0);
  CHECK(covered_by("example.com/team", "example.com/team/x:1") == 16);
  CHECK(covered_by("example.com/team", "example.com/teams/x:1") == 0);
  CHECK(covered_by("example.com/x:1", "example.com/x:1") == 15);
  CHECK(covered_by("example.com/x:1", "example.com/x:12") == 0);
  CHECK(covered_by("*.example.com", "a.b.example.com:5000/x:1") == 15);
  CHECK(covered_by("*.example.com", "example.com/x:1") == 0);
  CHECK(covered_by("*.example.com", "badexample.com/x:1") == 0);
  CHECK(covered_by("*.example.com", "other.test/a.example.com:1") == 0);
}

TEST_CASE("no rule: the registry itself") {
  CHECK(places("a.test/x", "") == "a.test/x:latest");
  CHECK(places("a.test/x", "unqualified-search-registries = [\"b.test\"]\nshort-name-mode = \"enforcing\"\n") ==
        "a.test/x:latest");
}

TEST_CASE("mirrors in order, then the registry or its location") {
  const std::string rules = R"(
[[registry]]
prefix = "a.test/team"
location = "b.test:5000/far"
[[registry.mirror]]
location = "m1.test"
insecure = true
[[registry.mirror]]
location = "m2.test/cache"
[[registry]]
location = "a.test"
)";
  CHECK(places("a.test/team/x:1", rules) == "m1.test/x:1!? m2.test/cache/x:1? b.test:5000/far/x:1?");
  CHECK(places("a.test/other:1", rules) == "a.test/other:1");
  CHECK(places("A.test/team/x:1", rules) == "m1.test/x:1!? m2.test/cache/x:1? b.test:5000/far/x:1?");
}

TEST_CASE("the longest match decides alone, a host more than a wildcard") {
  const std::string rules = R"(
[[registry]]
prefix = "*.test"
blocked = true
[[registry]]
prefix = "*.a.test"
[[registry.mirror]]
location = "m.test/wild"
[[registry]]
prefix = "b.a.test"
insecure = true
)";
  CHECK(places("x.test/i", rules) == "images of *.test are blocked by r.conf:2");
  const auto parsed = parse_registries_conf(rules, "r.conf");
  REQUIRE(parsed);
  CHECK(endpoints_of(ImageReference::parse("x.test/i").value(), *parsed).error().code() == ErrorCode::registry_blocked);
  CHECK(places("x.a.test/i", rules) == "m.test/wild/i:latest? x.a.test/i:latest");
  CHECK(places("b.a.test/i", rules) == "b.a.test/i:latest!");
}

TEST_CASE("tags and digests choose their mirrors") {
  const std::string digest = "@sha256:" + std::string(64, 'a');
  const std::string rules = R"(
[[registry]]
location = "a.test"
[[registry.mirror]]
location = "d.test"
pull-from-mirror = "digest-only"
[[registry.mirror]]
location = "t.test"
pull-from-mirror = "tag-only"
)";
  CHECK(places("a.test/x:1", rules) == "t.test/x:1? a.test/x:1");
  CHECK(places("a.test/x" + digest, rules) == "d.test/x" + digest + "? a.test/x" + digest);
  // As the nodes of a step ask for it.
  CHECK(places("a.test/x:1" + digest, rules) ==
        "d.test/x:1" + digest + "? t.test/x:1" + digest + "? a.test/x:1" + digest);
  const std::string by_digest =
      "[[registry]]\nlocation = \"a.test\"\nmirror-by-digest-only = true\n[[registry.mirror]]\nlocation = \"d.test\"\n";
  CHECK(places("a.test/x:1", by_digest) == "a.test/x:1");
  CHECK(places("a.test/x" + digest, by_digest) == "d.test/x" + digest + "? a.test/x" + digest);
}

TEST_CASE("Docker Hub has many names") {
  for (const char* name : {"docker.io", "index.docker.io", "registry-1.docker.io"}) {
    const std::string rules =
        std::string("[[registry]]\nprefix = \"") + name + "\"\n[[registry.mirror]]\nlocation = \"m.test/hub\"\n";
    CHECK(places("alpine", rules) == "m.test/hub/library/alpine:latest? registry-1.docker.io/library/alpine:latest");
    CHECK(places("docker.io/me/x:1", rules) == "m.test/hub/me/x:1? registry-1.docker.io/me/x:1");
  }
  CHECK(places("m.test/x:1", "[[registry]]\nprefix = \"m.test\"\nlocation = \"docker.io/library\"\n") ==
        "registry-1.docker.io/library/x:1?");
}

TEST_CASE("another spelling of a place is no way round its rule") {
  const auto blocked = [](const std::string& image, const std::string& prefix) {
    const auto rules = parse_registries_conf("[[registry]]\nprefix = \"" + prefix + "\"\nblocked = true\n", "r");
    const auto endpoints = endpoints_of(ImageReference::parse(image).value(), rules.value());
    return !endpoints && endpoints.error().code() == ErrorCode::registry_blocked;
  };
  for (const char* image : {"ubuntu", "docker.io/library/ubuntu", "registry-1.docker.io:443/library/ubuntu",
                            "Registry-1.Docker.IO/library/ubuntu", "docker.io.:0443/library/ubuntu"}) {
    INFO(image);
    CHECK(blocked(image, "docker.io"));
    CHECK(blocked(image, "Index.docker.io:443"));
  }
  CHECK(blocked("nvcr.io:443/private/x", "nvcr.io/private"));
  CHECK(blocked("nvcr.io./private/x", "nvcr.io:443/private"));
  CHECK_FALSE(blocked("nvcr.io:444/private/x", "nvcr.io/private"));
}

TEST_CASE("the user's name is for the host that he named") {
  const auto rules =
      parse_registries_conf("[[registry]]\nlocation=\"a.test\"\n[[registry.mirror]]\nlocation=\"b.test\"\n", "r");
  const auto endpoints = endpoints_of(ImageReference::parse("docker://joe@a.test/x").value(), rules.value());
  REQUIRE(endpoints);
  CHECK((*endpoints)[0].reference.user.empty());
  CHECK((*endpoints)[1].reference.user == "joe");
}

TEST_CASE("a rule that makes no name of an image says so") {
  CHECK(places("a.test/x:1", "[[registry]]\nprefix = \"a.test/x\"\nlocation = \"b.test\"\n") ==
        "r.conf:1: makes 'b.test:1' of it, which has no image name");
  CHECK(places("a.test/x:1", "[[registry]]\nprefix = \"a.test\"\nlocation = \"b.test/UPPER\"\n").find("upper-case") !=
        std::string::npos);
}

TEST_CASE("damaged files are errors with their line, keys of others are not") {
  CHECK(error_of_rules("[[registry]\n").starts_with("r.conf:1: "));
  CHECK(error_of_rules("\n[[registry]]\nblocked = \"yes\"\nprefix = \"a\"\n") ==
        "r.conf:3: blocked must be true or false");
  CHECK(error_of_rules("[[registry]]\nprefix = \"https://a.test\"\n") == "r.conf:2: prefix must be HOST[:PORT][/PATH]");
  CHECK(error_of_rules("[[registry]]\nprefix = \"*.a.test/x\"\n") == "r.conf:2: prefix must be HOST[:PORT][/PATH]");
  CHECK(error_of_rules("[[registry]]\nprefix = \"a\"\n[[registry.mirror]]\nlocation = \"user@b.test\"\n") ==
        "r.conf:4: location must be HOST[:PORT][/PATH]");
  CHECK(error_of_rules("\xc3\xa9 = \xc3\xa9").starts_with("r.conf:1: "));
  CHECK(error_of_rules("[[registry]]\ninsecure = true\n") == "r.conf:1: a registry needs a prefix or a location");
  CHECK(error_of_rules("[[registry]]\nprefix = \"a\"\n[[registry.mirror]]\n") == "r.conf:3: a mirror needs a location");
  CHECK(error_of_rules("[[registry]]\nprefix=\"a\"\n[[registry.mirror]]\nlocation=\"b\"\npull-from-mirror=\"x\"\n") ==
        R"(r.conf:5: pull-from-mirror must be "all", "digest-only" or "tag-only")");
  CHECK(error_of_rules("registry = 3\n") == "r.conf:1: registry must be tables, written [[registry]]");
  CHECK(error_of_rules("[aliases]\nx = \"y\"\n[[registry]]\nprefix = \"a\"\nfuture = 1\n").empty());
}

TEST_CASE("version 1 of the file") {
  const std::string rules = R"(
[registries.search]
registries = ["docker.io"]
[registries.insecure]
registries = ["a.test:5000"]
[registries.block]
registries = ["b.test"]
)";
  CHECK(places("a.test:5000/x", rules) == "a.test:5000/x:latest!");
  CHECK(places("b.test/x", rules) == "images of b.test are blocked by r.conf:7");
}

TEST_CASE("which files count") {
  const test::TempDir directory;
  const std::string base = directory.path();
  const RuleFiles files{base + "/situla.toml", base + "/r.conf", {base + "/r.conf.d", base + "/missing"}, false};
  CHECK(load_registry_rules(files).value().empty());
  write(base + "/r.conf",
        "[[registry]]\nprefix = \"a.test\"\nlocation = \"1.test\"\n[[registry]]\nprefix = \"c.test\"\n");
  write(base + "/r.conf.d/20.conf", "[[registry]]\nprefix = \"a.test\"\nlocation = \"20.test\"\n");
  write(base + "/r.conf.d/10.conf", "[[registry]]\nprefix = \"a.test\"\nlocation = \"10.test\"\n");
  write(base + "/r.conf.d/30.txt", "[[registry]]\nprefix = \"a.test\"\nlocation = \"30.test\"\n");
  auto rules = load_registry_rules(files).value();
  REQUIRE(rules.size() == 2);
  CHECK(rules[0].location == "20.test");
  CHECK(rules[0].where == base + "/r.conf.d/20.conf:1");
  write(base + "/r.conf.d/40.conf", "registry\n");
  CHECK_FALSE(load_registry_rules(files));

  Environment environment;
  environment.set("HOME", base);
  CHECK(RuleFiles::of_user(environment).main == "/etc/containers/registries.conf");
  CHECK(RuleFiles::of_user(environment).directories.size() == 2);
  write(base + "/.config/containers/registries.conf", "");
  CHECK(RuleFiles::of_user(environment).main == base + "/.config/containers/registries.conf");
  CHECK(RuleFiles::of_user(environment).directories.size() == 1);
}
