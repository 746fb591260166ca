// Which certificates of a bundle are found, and does OpenSSL verify with them as with the whole bundle?
#include "hooks/registry/trust_store.hpp"

#include <cstdlib>

#include <catch2/catch.hpp>
#include <openssl/pem.h>
#include <openssl/ssl.h>

#include "common/sys/file.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

void run(const std::string& command) {
  INFO(command);
  REQUIRE(std::system((command + " >/dev/null 2>&1").c_str()) == 0);
}

/// Two roots of one name, an intermediate and a server's certificate of the first.
struct Authority {
  explicit Authority(const test::TempDir& directory) : at(directory.path() + "/") {
    const std::string key = "openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes ";
    for (const char* root : {"one", "two"})
      run(key + "-x509 -days 9 -subj '/O=Lab/CN=The Root' -addext basicConstraints=critical,CA:TRUE -keyout " + at +
          root + ".key -out " + at + root + ".pem");
    run(key + "-subj '/O=Lab/CN=Between' -keyout " + at + "between.key -out " + at + "between.csr");
    REQUIRE(write_file_atomically(at + "ca.cnf", "basicConstraints=critical,CA:TRUE\n", 0600));
    run("openssl x509 -req -days 9 -in " + at + "between.csr -CA " + at + "one.pem -CAkey " + at + "one.key -extfile " +
        at + "ca.cnf -out " + at + "between.pem");
    run(key + "-subj /CN=registry.test -keyout " + at + "leaf.key -out " + at + "leaf.csr");
    run("openssl x509 -req -days 9 -in " + at + "leaf.csr -CA " + at + "between.pem -CAkey " + at +
        "between.key -out " + at + "leaf.pem");
  }
  [[nodiscard]] std::string pem(const char* name) const { return *read_file(at + name + ".pem"); }
  std::string at;
};

X509* parse(const std::string& pem) {
  BIO* memory = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
  X509* certificate = PEM_read_bio_X509(memory, nullptr, nullptr, nullptr);
  BIO_free(memory);
  REQUIRE(certificate != nullptr);
  return certificate;
}

/// X509_V_OK, or why not.
int verify(const TrustStore& trust, const std::string& leaf, const std::string& between) {
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  REQUIRE(trust.add_to(context));
  X509* server = parse(leaf);
  X509* sent = parse(between);
  STACK_OF(X509)* chain = sk_X509_new_null();
  sk_X509_push(chain, sent);
  X509_STORE_CTX* verifying = X509_STORE_CTX_new();
  X509_STORE_CTX_init(verifying, SSL_CTX_get_cert_store(context), server, chain);
  X509_verify_cert(verifying);
  const int error = X509_STORE_CTX_get_error(verifying);
  X509_STORE_CTX_free(verifying);
  sk_X509_free(chain);
  X509_free(sent);
  X509_free(server);
  SSL_CTX_free(context);
  return error;
}

}  // namespace

TEST_CASE("a certificate is trusted by the one root that signed it, wherever it lies in the bundle") {
  const test::TempDir directory;
  const Authority authority(directory);
  const std::string leaf = authority.pem("leaf"), between = authority.pem("between");
  const std::string one = authority.pem("one"), two = authority.pem("two");
  CHECK(verify(TrustStore(one), leaf, between) == X509_V_OK);
  CHECK(verify(TrustStore(one + two), leaf, between) == X509_V_OK);
  CHECK(verify(TrustStore(two + one), leaf, between) == X509_V_OK);  // the wrong one of the two is found first
  CHECK(
      verify(TrustStore("# a comment\n" + two + "\n-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n" + one),
             leaf, between) == X509_V_OK);
  CHECK(verify(TrustStore(two), leaf, between) != X509_V_OK);
  CHECK(verify(TrustStore(""), leaf, between) != X509_V_OK);
  CHECK(verify(TrustStore(leaf), leaf, between) != X509_V_OK);
}

TEST_CASE("every certificate of the system's bundle is found by its name") {
  const auto bundle = read_file("/etc/ssl/certs/ca-certificates.crt");
  REQUIRE(bundle);
  const TrustStore trust(*bundle);
  size_t count = 0;
  for (size_t at = bundle->find("-----BEGIN"); at != std::string::npos; at = bundle->find("-----BEGIN", at + 1))
    ++count;
  CHECK(count > 100);
  CHECK(trust.certificates().size() == count);
  BIO* memory = BIO_new_mem_buf(bundle->data(), static_cast<int>(bundle->size()));
  for (const auto& each : trust.certificates()) {
    X509* certificate = PEM_read_bio_X509(memory, nullptr, nullptr, nullptr);
    REQUIRE(certificate != nullptr);
    const unsigned char* name = nullptr;
    size_t size = 0;
    X509_NAME_get0_der(X509_get_subject_name(certificate), &name, &size);
    CHECK((each.subject_name() == std::string_view(reinterpret_cast<const char*>(name), size)));
    X509_free(certificate);
  }
  BIO_free(memory);
}

TEST_CASE("what is no certificate is left out, whatever its lengths say") {
  for (const char* text : {"", "MA==", "MIIB", "MIQAAAAA", "MIR/////", "MAowCAIBADADBgEq", "MIAA"}) {
    const TrustStore trust("-----BEGIN CERTIFICATE-----\n" + std::string(text) + "\n-----END CERTIFICATE-----\n");
    CHECK(trust.certificates().empty());
  }
}
