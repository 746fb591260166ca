// Are image references understood as COMPAT.md sections 1 and 3 say?
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "common/spec/digest.hpp"
#include "common/spec/image_reference.hpp"

using namespace situla;

namespace {

const std::string kHex = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

struct Case {
  std::string text, user, registry, repository, tag;
  bool digest = false;
};

}  // namespace

TEST_CASE("every form of a reference") {
  const std::string hub = "registry-1.docker.io";
  const std::vector<Case> cases = {
      {"ubuntu", "", hub, "library/ubuntu", "latest"},
      {"docker://ubuntu", "", hub, "library/ubuntu", "latest"},
      {"docker://ubuntu:22.04", "", hub, "library/ubuntu", "22.04"},
      {"nvidia/cuda:12.4", "", hub, "nvidia/cuda", "12.4"},
      {"docker.io/ubuntu", "", hub, "library/ubuntu", "latest"},
      {"docker.io#ubuntu", "", hub, "library/ubuntu", "latest"},
      {"index.docker.io/library/ubuntu", "", hub, "library/ubuntu", "latest"},
      {"registry-1.docker.io#nvidia/cuda", "", hub, "nvidia/cuda", "latest"},
      {"nvcr.io#nvidia/pytorch:24.10-py3", "", "nvcr.io", "nvidia/pytorch", "24.10-py3"},
      {"nvcr.io/nvidia/pytorch:24.10-py3", "", "nvcr.io", "nvidia/pytorch", "24.10-py3"},
      {"docker://$oauthtoken@nvcr.io#nvidia/pytorch:24.10-py3", "$oauthtoken", "nvcr.io", "nvidia/pytorch",
       "24.10-py3"},
      {"docker://joe@nvcr.io/nvidia/pytorch", "joe", "nvcr.io", "nvidia/pytorch", "latest"},
      {"joe@example.org@registry.test#a/b:C", "joe@example.org", "registry.test", "a/b", "C"},
      {"joe@ubuntu", "joe", hub, "library/ubuntu", "latest"},
      {"localhost:5000/x/y/z:t", "", "localhost:5000", "x/y/z", "t"},
      {"localhost:5000#x", "", "localhost:5000", "x", "latest"},
      {"joe@localhost:5000#x", "joe", "localhost:5000", "x", "latest"},
      {"joe@shared.test:5000/x", "joe", "shared.test:5000", "x", "latest"},
      {"shortname#x:1", "", "shortname", "x", "1"},
      {"[::1]:5000/x", "", "[::1]:5000", "x", "latest"},
      {"ubuntu@sha256:" + kHex, "", hub, "library/ubuntu", "", true},
      {"ubuntu:22.04@sha256:" + kHex, "", hub, "library/ubuntu", "22.04", true},
      {"ubuntu:sha256:" + kHex, "", hub, "library/ubuntu", "", true},
      {"docker://joe@registry.test:443/a/b:1@sha256:" + kHex, "joe", "registry.test:443", "a/b", "1", true},
      {"foo.sqsh", "", hub, "library/foo.sqsh", "latest"},
  };
  for (const Case& expected : cases) {
    INFO(expected.text);
    const auto parsed = ImageReference::parse(expected.text);
    REQUIRE(parsed.has_value());
    CHECK(parsed->user == expected.user);
    CHECK(parsed->registry == expected.registry);
    CHECK(parsed->repository == expected.repository);
    CHECK(parsed->tag == expected.tag);
    CHECK(parsed->digest.has_value() == expected.digest);
    if (expected.digest) CHECK(parsed->manifest_name() == "sha256:" + kHex);
    if (!expected.digest) CHECK(parsed->manifest_name() == expected.tag);
  }
}

TEST_CASE("what is not a reference says which part is wrong") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "no image name"},
      {"nvcr.io#", "no image name"},
      {"#ubuntu", "registry before '#' is empty"},
      {"@ubuntu", "user name before '@' is empty"},
      {"Ubuntu", "upper-case"},
      {"a//b", "empty component"},
      {"nvcr.io#a/../b", "'..' is not a valid part"},
      {"ubuntu:", "not a valid tag"},
      {"ubuntu:a b", "not a valid tag"},
      {"ubuntu:" + std::string(129, 'a'), "not a valid tag"},
      {"ubuntu@sha256:12", "64 hexadecimal digits"},
      {"ubuntu@sha512:12", "not a sha256 digest"},
      {"ubuntu@sha256:" + std::string(64, 'A'), "lower-case"},
      {"https://ubuntu", "unknown scheme 'https'"},
      {"host/path#image", "'host/path' is not a registry host"},
      {"registry.test:99999/x", "is not a registry host"},
      {"a b@ubuntu", "user name has characters"},
      {std::string("ubuntu\x1b[2J"), "\\x1b"},
  };
  for (const auto& [text, part] : cases) {
    INFO(text);
    const auto parsed = ImageReference::parse(text);
    REQUIRE_FALSE(parsed.has_value());
    CHECK(parsed.error().kind() == ErrorKind::usage);
    CHECK(parsed.error().code() == ErrorCode::image_name);
    CHECK(parsed.error().message().find(part) != std::string::npos);
  }
}

TEST_CASE("default file names") {
  const auto name = [](const std::string& text) { return ImageReference::parse(text)->default_file_name(); };
  CHECK(name("docker://ubuntu") == "ubuntu+latest.sqsh");
  CHECK(name("nvcr.io#nvidia/pytorch:24.10-py3") == "nvidia+pytorch+24.10-py3.sqsh");
  CHECK(name("library/debian:12") == "debian+12.sqsh");
  CHECK(name("x@sha256:" + kHex) == "x+sha256+" + kHex + ".sqsh");
}

TEST_CASE("the text for messages never holds the user") {
  CHECK(ImageReference::parse("secret@nvcr.io#a/b")->text() == "nvcr.io/a/b:latest");
  CHECK(ImageReference::parse("h:5/a@sha256:" + kHex)->text() == "h:5/a@sha256:" + kHex);
  CHECK(ImageReference::parse("h:5/a")->registry_host() == "h");
  CHECK(ImageReference::parse("[::1]:5/a")->registry_host() == "::1");
}

TEST_CASE("image kinds are told by the first characters") {
  CHECK(image_kind("./a.sqsh") == ImageKind::path);
  CHECK(image_kind("/a.sqsh") == ImageKind::path);
  CHECK(image_kind("app.SIF") == ImageKind::path);
  CHECK(image_kind("../a") == ImageKind::path);
  // Also the names that `import` gives, which are no references.
  for (const char* file :
       {"a.sqsh", "debian+12.sqsh", "Images/A.SQSH", "a.squashfs", "~/a", "$HOME/a", "$HOME/me@a", "$IMAGE@a"})
    CHECK(image_kind(file) == ImageKind::path);
  for (const char* image : {"docker://a.sqsh", "quay.io/b/a.sqsh", "quay.io#a.sqsh", "localhost/a.sqsh", "me@a.sqsh",
                            "$oauthtoken@nvcr.io#nvidia/cuda"})
    CHECK(image_kind(image) == ImageKind::registry);
  CHECK(image_kind("dockerd://x") == ImageKind::docker_daemon);
  CHECK(image_kind("podman://x") == ImageKind::podman);
  CHECK(image_kind("oci:x") == ImageKind::oci_layout);
  CHECK(image_kind("oci-archive:x") == ImageKind::oci_archive);
  CHECK(image_kind("docker-archive:x") == ImageKind::docker_archive);
  CHECK(image_kind("dir:x") == ImageKind::directory);
  CHECK(image_kind("docker://oci:5000/x") == ImageKind::registry);
}

TEST_CASE("paths and full names of images") {
  Environment environment;
  environment.set("HOME", "/home/me");
  environment.set("USER", "me");
  CHECK(image_path("~/a.sqsh", environment) == "/home/me/a.sqsh");
  CHECK(image_path("/scratch/$USER/a.sqsh", environment) == "/scratch/me/a.sqsh");
  CHECK(image_path("~you/a.sqsh", environment) == "~you/a.sqsh");
  CHECK(full_image_name("a.sqsh", environment, "/data") == "/data/a.sqsh");
  CHECK(full_image_name("././a.sqsh", environment, "/data") == "/data/a.sqsh");
  CHECK(full_image_name("~/a.sqsh", environment, "/data") == "/home/me/a.sqsh");
  CHECK(full_image_name("quay.io#b/a", environment, "/data") ==
        full_image_name("docker://quay.io/b/a:latest", {}, "/"));
}

TEST_CASE("images in files: the path ends at the first colon, but for dir:") {
  const auto parse = [](const char* text) { return FileReference::parse(text).value(); };
  CHECK(parse("oci:/a/b").path == "/a/b");
  CHECK(parse("oci:/a/b").name.empty());
  CHECK(parse("oci:/a/b:registry.test/x:1").path == "/a/b");
  CHECK(parse("oci:/a/b:registry.test/x:1").name == "registry.test/x:1");
  CHECK(parse("docker-archive:x.tar:ubuntu:22.04").name == "ubuntu:22.04");
  CHECK(parse("oci-archive:x.tar:@3").index == 3U);
  CHECK(parse("oci-archive:x.tar:@3").name.empty());
  CHECK(parse("oci-archive:x.tar:@3").text() == "oci-archive:x.tar:@3");
  CHECK(parse("dir:/a:b").path == "/a:b");
  CHECK(parse("oci:a\nb:c").text() == "oci:a\\x0ab:c");
  for (const auto* text : {"oci:", "oci::x", "dir:", "oci-archive:x:@", "oci-archive:x:@-1", "ubuntu", "./oci:x"})
    CHECK_FALSE(FileReference::parse(text));
  CHECK_FALSE(FileReference::parse(std::string_view("oci:a\0b", 7)));
}

TEST_CASE("images of engines") {
  const auto exact = [](const char* text) { return EngineReference::parse(text).value().exact_name(); };
  CHECK(exact("dockerd://ubuntu") == "ubuntu:latest");
  CHECK(exact("dockerd://ubuntu:22.04") == "ubuntu:22.04");
  CHECK(exact("podman://localhost:5000/a/b") == "localhost:5000/a/b:latest");
  CHECK(exact("podman://0123456789ab") == "0123456789ab");
  CHECK(exact(("dockerd://sha256:" + kHex).c_str()) == "sha256:" + kHex);
  CHECK(exact(("dockerd://x@sha256:" + kHex).c_str()) == "x@sha256:" + kHex);
  for (const auto* text : {"dockerd://", "podman://-o/x", "dockerd://a b", "dockerd://a?b", "dockerd://a%2e", "x",
                           "dockerd://../x", "podman://a/./b", "podman://a//b", "podman:///a"})
    CHECK_FALSE(EngineReference::parse(text));
}

TEST_CASE("default file names of all kinds") {
  const auto name = [](const char* text) { return default_file_name(text).value(); };
  CHECK(name("docker://ubuntu") == "ubuntu+latest.sqsh");
  CHECK(name("dockerd://ubuntu") == "ubuntu.sqsh");
  CHECK(name("podman://quay.io/a/b:1") == "quay.io+a+b+1.sqsh");
  CHECK(name("oci-archive:/data/debian.tar:12") == "debian.sqsh");
  CHECK(name("docker-archive:a.b.tar") == "a.b.sqsh");
  CHECK(name("docker-archive:.tar") == ".tar.sqsh");
  CHECK(name("oci:/data/debian-12.5/:x") == "debian-12.5.sqsh");
  CHECK(name("dir:..") == "image.sqsh");
}

TEST_CASE("every kind is checked") {
  for (const auto* text :
       {"./x", "ubuntu", "dockerd://x", "podman://x", "oci:x:1", "oci-archive:x", "docker-archive:x", "dir:x"})
    CHECK(check_image(text));
  for (const auto* text :
       {"", "Ubuntu", "dockerd://", "podman://-", "oci:", "oci-archive::x", "docker-archive:", "dir:"})
    CHECK_FALSE(check_image(text));
}

TEST_CASE("digests round-trip") {
  const auto digest = Digest::parse("sha256:" + kHex);
  REQUIRE(digest.has_value());
  CHECK(digest->hex() == kHex);
  CHECK(digest->text() == "sha256:" + kHex);
  CHECK(Digest::parse(kHex).error().hint().find("sha256:") != std::string::npos);
}

TEST_CASE("a name of Docker Hub has its length with \"library/\"") {
  CHECK(ImageReference::parse(std::string(247, 'a')));
  CHECK_FALSE(ImageReference::parse(std::string(248, 'a')));
  CHECK(ImageReference::parse("registry.test/" + std::string(255, 'a')));
}

TEST_CASE("one slash or none is known for a scheme that was meant") {
  CHECK(meant_scheme("docker:ubuntu") == "did you mean docker://ubuntu?");
  CHECK(meant_scheme("docker:/ubuntu:24.04") == "did you mean docker://ubuntu:24.04?");
  CHECK(meant_scheme("podman:mine") == "did you mean podman://mine?");
  CHECK(meant_scheme("docker://ubuntu").empty());
  CHECK(meant_scheme("docker:").empty());
  CHECK(meant_scheme("ubuntu:24.04").empty());
  CHECK(ImageReference::parse("docker:dind"));
  CHECK(ImageReference::parse("docker:ubuntu:24.04").error().hint() == "did you mean docker://ubuntu:24.04?");
}
