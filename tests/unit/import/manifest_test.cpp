// Are manifests, indexes and configurations read, and hostile ones refused?
#include "hooks/registry/manifest.hpp"

#include <algorithm>

#include <catch2/catch.hpp>

using namespace situla;

namespace {

const std::string kHex(64, 'a');
const std::string kDigest = "\"sha256:" + kHex + "\"";

std::string descriptor(const std::string& more = "") {
  return "{\"digest\":" + kDigest + ",\"size\":5" + more + "}";
}

}  // namespace

TEST_CASE("image manifests") {
  const auto parsed = parse_manifest(
      "{\"schemaVersion\":2,\"config\":" + descriptor() + ",\"layers\":[" + descriptor() + "," + descriptor() + "]}",
      "");
  REQUIRE(parsed);
  const auto& manifest = std::get<Manifest>(*parsed);
  CHECK(manifest.layers.size() == 2);
  CHECK(manifest.layers[0].size == 5);
  CHECK(manifest.layers[0].digest.hex() == kHex);
}

TEST_CASE("indexes are chosen from by platform") {
  const auto entry = [](const std::string& arch, const std::string& variant, char c) {
    return "{\"digest\":\"sha256:" + std::string(64, c) + "\",\"size\":1,\"platform\":{\"os\":\"" +
           (arch == "unknown" ? "unknown" : "linux") + "\",\"architecture\":\"" + arch + "\",\"variant\":\"" + variant +
           "\"}}";
  };
  const auto parsed = parse_manifest("{\"manifests\":[" + entry("unknown", "", '0') + "," + entry("amd64", "", '1') +
                                         "," + entry("arm64", "v9", '2') + "," + entry("arm64", "v8", '3') + "]}",
                                     "");
  REQUIRE(parsed);
  const auto& index = std::get<Index>(*parsed);
  CHECK(choose_platform(index, Platform::parse("x86_64").value())->digest.hex() == std::string(64, '1'));
  CHECK(choose_platform(index, Platform::parse("aarch64").value())->digest.hex() == std::string(64, '3'));
  const auto missing = choose_platform(index, Platform::parse("ppc64le").value());
  REQUIRE_FALSE(missing);
  CHECK(missing.error().code() == ErrorCode::image_platform);
  CHECK(missing.error().hint() == "it exists for linux/amd64, linux/arm64/v9, linux/arm64/v8");
}

TEST_CASE("an entry that does not say for what it is, where no other one does") {
  const auto chosen = [](const std::string& entries) {
    const auto parsed = parse_manifest("{\"manifests\":[" + entries + "]}", "");
    REQUIRE(parsed);
    const auto descriptor = choose_platform(std::get<Index>(*parsed), Platform::parse("amd64").value());
    return descriptor ? descriptor->digest.hex().substr(0, 1) : descriptor.error().hint();
  };
  const auto entry = [](char c, const std::string& more) {
    return "{\"digest\":\"sha256:" + std::string(64, c) + "\",\"size\":1" + more + "}";
  };
  const std::string platform = R"(,"platform":{"os":"linux","architecture":"amd64"})";
  CHECK(chosen(entry('1', "")) == "1");
  CHECK(chosen(entry('1', "") + "," + entry('2', platform)) == "2");
  CHECK(chosen(entry('1', "") + "," + entry('2', R"(,"platform":{"os":"linux","architecture":"arm64"})")) ==
        "it exists for linux/arm64");
  CHECK(chosen(entry('1', R"(,"artifactType":"application/spdx+json")") + "," + entry('2', "")) == "2");
  CHECK(chosen(entry('1', R"(,"artifactType":"application/spdx+json")")) == "its index names no image");
}

TEST_CASE("entries that cannot be used or are written carelessly do not spoil the others") {
  const std::string good = "{\"digest\":" + kDigest + R"(,"size":1,"platform":{"os":"","architecture":"amd64"}})";
  for (const std::string& bad :
       {std::string(R"({"digest":"sha512:00","size":1,"platform":{"os":"linux","architecture":"amd64"}})"),
        "{\"digest\":" + kDigest + R"(,"platform":{"os":"linux","architecture":"arm64"}})", std::string("{}")}) {
    INFO(bad);
    const auto parsed = parse_manifest("{\"manifests\":[" + bad + "," + good + "]}", "");
    REQUIRE(parsed);
    const auto chosen = choose_platform(std::get<Index>(*parsed), Platform::parse("amd64").value());
    REQUIRE(chosen);
    CHECK(chosen->digest.hex() == kHex);
  }
}

TEST_CASE("what others could read as another image (CVE-2021-41190)") {
  const std::string layers = "\"layers\":[" + descriptor() + "]", config = "\"config\":" + descriptor(),
                    manifests = "\"manifests\":[" + descriptor() + "]";
  for (const std::string& text :
       {config + "," + layers + "," + manifests, layers + "," + manifests, config + "," + manifests,
        manifests + ",\"fsLayers\":[]", config + "," + layers + ",\"fsLayers\":[]"}) {
    INFO(text);
    const auto parsed = parse_manifest("{" + text + "}", "application/vnd.oci.image.manifest.v1+json");
    REQUIRE_FALSE(parsed);
    CHECK(parsed.error().kind() == ErrorKind::corrupt);
  }
}

TEST_CASE("variants: the same, else the highest below, else the lowest above") {
  const auto chosen = [](const std::vector<std::string>& offered, const std::string& wanted) {
    Index index;
    for (const std::string& text : offered) {
      IndexEntry entry;
      entry.platform = Platform::parse("linux/" + text).value();
      if (std::count(text.begin(), text.end(), '/') == 0) entry.platform.variant.clear();
      entry.manifest.size = index.size();
      index.push_back(entry);
    }
    const auto descriptor = choose_platform(index, Platform::parse(wanted).value());
    return descriptor ? offered[descriptor->size] : descriptor.error().message();
  };
  CHECK(chosen({"arm/v5", "arm/v6", "arm/v7", "arm64/v8"}, "linux/arm/v7") == "arm/v7");
  CHECK(chosen({"arm/v7", "arm/v5", "arm/v6"}, "linux/arm/v6") == "arm/v6");
  CHECK(chosen({"arm/v5", "arm/v6", "arm64/v8"}, "armhf") == "arm/v6");
  CHECK(chosen({"arm/v6", "arm"}, "armv7l") == "arm");  // no variant is v7
  CHECK(chosen({"arm/v5", "arm/v6"}, "linux/arm/v8") == "arm/v6");
  CHECK(chosen({"arm/v7", "arm/v6"}, "linux/arm/v5") == "arm/v6");
  CHECK(chosen({"amd64/v3", "amd64/v2", "amd64"}, "x86_64") == "amd64");
  CHECK(chosen({"amd64/v3", "amd64/v1"}, "x86_64") == "amd64/v1");
  CHECK(chosen({"amd64", "amd64/v2", "amd64/v4"}, "linux/amd64/v3") == "amd64/v2");
  CHECK(chosen({"amd64/v4", "amd64/v3", "amd64/v2"}, "amd64") == "amd64/v2");
  CHECK(chosen({"arm64/v9", "arm64"}, "aarch64") == "arm64");
  CHECK(chosen({"arm64/v9", "arm64/v8"}, "linux/arm64/v9") == "arm64/v9");
  CHECK(chosen({"arm64/v9", "arm64/odd", "arm64/v8"}, "linux/arm64/odd") == "arm64/odd");
  CHECK(chosen({"arm/v7"}, "aarch64") == "the image does not exist for linux/arm64/v8");
}

TEST_CASE("which variants need a newer processor") {
  const auto newer = [](const std::string& image, const std::string& platform) {
    return needs_newer_processor(Platform::parse(image).value(), Platform::parse(platform).value());
  };
  CHECK(newer("linux/amd64/v3", "x86_64"));
  CHECK(newer("linux/arm64/v9", "aarch64"));
  CHECK_FALSE(newer("linux/amd64/v1", "x86_64"));
  CHECK_FALSE(newer("linux/amd64/v2", "linux/amd64/v3"));
  CHECK_FALSE(newer("linux/arm64/v8", "x86_64"));
}

TEST_CASE("what is no manifest") {
  for (const std::string& text : std::vector<std::string>{
           "", "<html>", "[]", "{}", "{\"layers\":[]}", "{\"config\":" + descriptor() + ",\"layers\":[{}]}",
           "{\"config\":" + descriptor() + ",\"layers\":[{\"digest\":" + kDigest + ",\"size\":-1}]}",
           "{\"config\":" + descriptor() + ",\"layers\":[{\"digest\":" + kDigest + ",\"size\":\"5\"}]}",
           "{\"config\":" + descriptor() + ",\"layers\":[{\"digest\":" + kDigest + ",\"size\":9223372036854775807}," +
               descriptor() + "]}",
           "{\"manifests\":[{\"digest\":\"sha512:x\"}]}", "{\"fsLayers\":[]}"}) {
    INFO(text);
    CHECK_FALSE(parse_manifest(text, "text/html"));
  }
}

TEST_CASE("configurations") {
  const auto config = parse_image_config(
      R"({"architecture":"amd64","config":{"Env":["A=1",5],"Entrypoint":["e"],"Cmd":null,"WorkingDir":"/w","Volumes":{"/b":{},"/a":{}},"Labels":{"z":"1","a":"2","n":3}}})");
  REQUIRE(config);
  CHECK(config->environment == std::vector<std::string>{"A=1"});
  CHECK(config->entrypoint == std::vector<std::string>{"e"});
  CHECK(config->command.empty());
  CHECK(config->volumes == std::vector<std::string>{"/a", "/b"});
  CHECK(config->labels == std::vector<std::pair<std::string, std::string>>{{"z", "1"}, {"a", "2"}});
  CHECK(parse_image_config("{}"));
  CHECK_FALSE(parse_image_config("x"));
}

TEST_CASE("configurations with texts that can be no path and no variable") {
  const auto with_workdir = [](size_t size) {
    return parse_image_config(R"({"config":{"WorkingDir":"/)" + std::string(size - 1, 'w') + "\"}}");
  };
  CHECK(with_workdir(4095));
  for (const size_t size : {size_t{4096}, size_t{2} << 20U}) {
    const auto config = with_workdir(size);
    REQUIRE_FALSE(config);
    CHECK(config.error().kind() == ErrorKind::corrupt);
    CHECK_THAT(config.error().text(),
               Catch::Contains("WorkingDir has " + std::to_string(size) + " bytes, more than 4095"));
  }
  for (const std::string& text : std::vector<std::string>{
           R"({"architecture":"a\u0000"})", R"({"created":"\u0000"})", R"({"config":{"Env":["A=1","B=\u0000"]}})",
           R"({"config":{"Entrypoint":["\u0000"]}})", R"({"config":{"Cmd":["\u0000"]}})",
           R"({"config":{"WorkingDir":"/a\u0000b"}})", R"({"config":{"User":"\u0000"}})",
           R"({"config":{"Volumes":{"/a\u0000":{}}}})", R"({"config":{"Labels":{"a":"\u0000"}}})"}) {
    INFO(text);
    const auto config = parse_image_config(text);
    REQUIRE_FALSE(config);
    CHECK_THAT(config.error().text(), Catch::Contains("NUL byte"));
  }
}

TEST_CASE("what registries say") {
  const auto error = parse_registry_error(R"({"errors":[{"code":"DENIED","message":"no\u001b[2J"}]})");
  CHECK(error.code == "DENIED");
  CHECK(error.message == "no\\x1b[2J");
  CHECK(parse_registry_error("<html>").message.empty());
  CHECK(parse_token(R"({"access_token":"t"})") == "t");
  CHECK(parse_token("{}").empty());
}
