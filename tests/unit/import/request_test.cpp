// Does a request survive the pipe, and does a damaged one do no harm?
#include "hooks/request/request.hpp"

#include <catch2/catch.hpp>

#include "hooks/request/certificates.hpp"
#include "tests/support/memory_log.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

TEST_CASE("round trip, and every cut of it is refused") {
  ImportRequest request;
  request.image = "registry.test/x:1";
  request.platform = "arm64";
  request.hint = "h";
  request.credentials.add({"a", "b", std::string("c\0\xff", 3)});
  request.credentials.add({"a:1", "", "t", Credential::Scope::registry, true});
  request.settings.ssl_cert_file = "/x";
  request.settings.trust = {"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", true};
  request.settings.token_servers = {{"registry.test", "auth.test"}};
  request.settings.allow_http = true;
  request.settings.max_connections = 3;
  request.settings.stall_timeout = 11;
  request.settings.stall_rate = 12;
  request.settings.source_date_epoch = 7;
  const std::string bytes = request.serialize().value();
  const auto back = ImportRequest::deserialize(bytes);
  REQUIRE(back);
  CHECK(back->image == request.image);
  CHECK(back->platform == "arm64");
  CHECK(back->hint == "h");
  CHECK(back->credentials.all() == request.credentials.all());
  CHECK(back->settings.ssl_cert_file == "/x");
  CHECK(back->settings.trust == request.settings.trust);
  CHECK(back->settings.token_servers == request.settings.token_servers);
  CHECK(back->settings.allow_http);
  CHECK(back->settings.max_connections == 3);
  CHECK(back->settings.stall_timeout == 11);
  CHECK(back->settings.stall_rate == 12);
  CHECK(back->settings.source_date_epoch == 7U);
  CHECK(back->serialize().value() == bytes);
  for (size_t size = 0; size < bytes.size(); ++size) REQUIRE_FALSE(ImportRequest::deserialize(bytes.substr(0, size)));
  CHECK_FALSE(ImportRequest::deserialize(bytes + "x"));
}

TEST_CASE("too large is refused before it is sent") {
  ImportRequest request;
  request.credentials.add({"a", "b", std::string(ImportRequest::kMaxBytes, 'x')});
  CHECK_FALSE(request.serialize());
}

TEST_CASE("more credentials than a request may have are refused, sent or received") {
  constexpr size_t kEntry = 3 * (4 + 1) + 2;             // three texts of one byte, the scope and the flag
  constexpr std::string_view kCount("\x01\x10\0\0", 4);  // 4097
  ImportRequest request;
  request.credentials.add({"a", "b", "c"});
  const std::string bytes = request.serialize().value();
  const std::string one = bytes.substr(bytes.size() - kEntry);
  std::string many = bytes.substr(0, bytes.size() - kEntry - kCount.size()) + std::string(kCount);
  for (int i = 0; i < 4097; ++i) many += one;
  const auto received = ImportRequest::deserialize(many);
  REQUIRE_FALSE(received);
  CHECK(received.error().message() == "the import request has too many credentials");
  for (int i = 1; i < 4097; ++i) request.credentials.add({"a", "b", "c"});
  CHECK_FALSE(request.serialize());
}

TEST_CASE("platforms") {
  for (const auto* name : {"x86_64", "amd64", "linux/amd64"}) CHECK(Platform::parse(name)->architecture == "amd64");
  for (const auto* name : {"aarch64", "arm64", "linux/arm64/v8"}) {
    CHECK(Platform::parse(name)->architecture == "arm64");
    CHECK(Platform::parse(name)->variant == "v8");
  }
  CHECK(Platform::parse("ppc64el")->architecture == "ppc64le");
  for (const auto* name : {"", "vax", "a/b/c/d", "/amd64"}) CHECK_FALSE(Platform::parse(name));
}

TEST_CASE("settings and the hint about a file of that name") {
  Environment environment;
  environment.set("HOME", "/nonexistent");
  environment.set("PWD", "/etc");
  environment.set("https_proxy", "http://proxy:1");
  environment.set("SOURCE_DATE_EPOCH", "123");
  environment.set("ENROOT_MAX_CONNECTIONS", "many");
  test::MemoryLog log;
  const auto config = EnrootConfig::load(environment, log);
  REQUIRE(config);
  const auto request = make_import_request("passwd", *config, environment, {}, log);
  REQUIRE(request);
  CHECK(request->hint.find("./passwd") != std::string::npos);
  CHECK(request->settings.https_proxy == "http://proxy:1");
  CHECK(request->settings.source_date_epoch == 123U);
  CHECK(request->settings.max_connections == 10);
  CHECK(log.text().find("ENROOT_MAX_CONNECTIONS=many") != std::string::npos);
  CHECK(make_import_request("Bad", *config, environment, {}, log).error().code() == ErrorCode::image_name);
  CHECK(make_import_request("x", *config, environment, {}, log, "vax").error().code() == ErrorCode::option);
}

TEST_CASE("certificates that cannot be used are errors") {
  const auto code = [](const std::string& file) { return read_trust_anchors(file, "").error().code(); };
  CHECK(code("/nonexistent/ca.pem") == ErrorCode::registry_certificate);
  CHECK(code("/etc/passwd") == ErrorCode::registry_certificate);
  CHECK(read_trust_anchors("/etc/passwd", "").error().message() ==
        "read the CA certificates SSL_CERT_FILE=/etc/passwd: there is none");
  const test::TempDir files;
  // What a directory has beside it does not make a file good that holds none.
  files.write("certificates/01234567.0", "-----BEGIN CERTIFICATE-----\nMAAA\n-----END CERTIFICATE-----\n");
  CHECK(read_trust_anchors("", files / "certificates")->with_nodes);
  CHECK(read_trust_anchors("/etc/passwd", files / "certificates").error().message() ==
        "read the CA certificates SSL_CERT_FILE=/etc/passwd: there is none");
  const std::string text =
      files.write("text.pem", "-----BEGIN CERTIFICATE-----\nbm8gY2VydGlmaWNhdGU=\n-----END CERTIFICATE-----\n");
  CHECK(read_trust_anchors(text, "").error().message() ==
        "read the CA certificates SSL_CERT_FILE=" + text + ": one of them is damaged");
}

TEST_CASE("certificates are the same text for everybody who trusts the same ones") {
  const auto block = [](const std::string& digits) {
    return "-----BEGIN CERTIFICATE-----\n" + digits + "\n-----END CERTIFICATE-----\n";
  };
  const std::string both = block("AAAA") + block("BBBB");
  CHECK(canonical_certificates(both) == both);
  CHECK(canonical_certificates("# mine\n" + block("BBBB") + "x\n\n" + block("AA\r\n AA") + block("BBBB")) == both);
  CHECK(canonical_certificates(block(std::string(100, 'A'))) ==
        block(std::string(64, 'A') + "\n" + std::string(36, 'A')));
  CHECK(canonical_certificates("-----BEGIN TRUSTED CERTIFICATE-----\nAAAA\n-----END TRUSTED CERTIFICATE-----\n") == "");
  CHECK(canonical_certificates("") == "");
  for (const char* damaged :
       {"-----BEGIN CERTIFICATE-----\nAAAA\n", "-----BEGIN CERTIFICATE----------END CERTIFICATE-----",
        "-----BEGIN CERTIFICATE-----\nA: b\n-----END CERTIFICATE-----"})
    CHECK_FALSE(canonical_certificates(damaged));
  for (const std::string& other : {"# mine\n" + both, block("BBBB") + block("AAAA"), block("AAAA") + block("AAAA")}) {
    ImportRequest request;
    request.image = "registry.test/x:1";
    request.settings.trust.pem = other;
    CHECK_FALSE(ImportRequest::deserialize(request.serialize().value()));
  }
}

TEST_CASE("an image in messages is what was typed, and where it is if that does not say so") {
  ImportRequest request;
  const auto words = [&](const std::string& image) {
    request.image = image;
    return request.image_in_words();
  };
  CHECK(words("registry.test#a/b") == "registry.test#a/b");
  CHECK(words("registry.test/a:1") == "registry.test/a:1");
  CHECK(words("docker://me@registry.test#a") == "me@registry.test#a");
  CHECK(words("debian:99") == "debian:99 (registry-1.docker.io/library/debian:99)");
  CHECK(words("registry.test#a@sha256:" + std::string(64, 'a')) == "registry.test/a@sha256:" + std::string(64, 'a'));
  CHECK(words("oci:x") == "oci:x");
}
