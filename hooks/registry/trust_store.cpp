#include "hooks/registry/trust_store.hpp"

#include <memory>
#include <optional>

#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

#include "common/base/base64.hpp"

namespace situla {
namespace {

/// One value of DER (X.690), definite lengths only.
struct Value {
  unsigned tag = 0;
  size_t begin = 0, content = 0, end = 0;
};

std::optional<Value> value_at(std::string_view der, size_t at) {
  if (der.size() - at < 2 || at > der.size()) return std::nullopt;
  Value value{static_cast<unsigned char>(der[at]), at, at + 2, 0};
  size_t size = static_cast<unsigned char>(der[at + 1]);
  if (size > 0x84) return std::nullopt;
  if (size >= 0x80) {
    size_t bytes = size & 0x7fU;
    for (size = 0; bytes > 0; --bytes, ++value.content) {
      if (value.content >= der.size()) return std::nullopt;
      size = size << 8U | static_cast<unsigned char>(der[value.content]);
    }
  }
  if (size > der.size() - value.content) return std::nullopt;
  value.end = value.content + size;
  return value;
}

/// RFC 5280, 4.1: Certificate { TBSCertificate { [0] version, serialNumber, signature, issuer, validity, subject ...
std::optional<Value> subject_of(std::string_view der) {
  constexpr unsigned kSequence = 0x30, kVersion = 0xa0;
  const auto certificate = value_at(der, 0);
  const auto signed_part = certificate ? value_at(der, certificate->content) : std::nullopt;
  auto field = signed_part ? value_at(der, signed_part->content) : std::nullopt;
  if (field && field->tag == kVersion) field = value_at(der, field->end);
  for (int skipped = 0; field && skipped < 4; ++skipped) field = value_at(der, field->end);
  return field && field->tag == kSequence ? field : std::nullopt;
}

struct FreeCertificate {
  void operator()(X509* certificate) const { X509_free(certificate); }
};
struct FreeMethod {
  void operator()(X509_LOOKUP_METHOD* method) const { X509_LOOKUP_meth_free(method); }
};

struct FreeName {
  void operator()(X509_NAME* name) const { X509_NAME_free(name); }
};

/// Equal but for capitals, blanks and kinds of text (RFC 5280, 7.1).
bool is_same_name(std::string_view der, const X509_NAME* name) {
  const auto* at = reinterpret_cast<const unsigned char*>(der.data());
  const std::unique_ptr<X509_NAME, FreeName> parsed(d2i_X509_NAME(nullptr, &at, static_cast<long>(der.size())));
  return parsed && X509_NAME_cmp(parsed.get(), name) == 0;
}

/// Into OpenSSL's own store of what it has seen.
bool add(const TrustStore::Certificate& each, X509_STORE* store) {
  const auto* at = reinterpret_cast<const unsigned char*>(each.der.data());
  const std::unique_ptr<X509, FreeCertificate> certificate(d2i_X509(nullptr, &at, static_cast<long>(each.der.size())));
  return certificate && X509_STORE_add_cert(store, certificate.get()) == 1;
}

/// Without a reference of its own: OpenSSL takes one itself, as its own methods (by_dir.c) leave it to do.
bool lend(X509_STORE* store, const X509_NAME* name, X509_OBJECT* found) {
  if (X509_STORE_lock(store) != 1) return false;
  const X509_OBJECT* kept =
      X509_OBJECT_retrieve_by_subject(X509_STORE_get0_objects(store), X509_LU_X509, const_cast<X509_NAME*>(name));
  X509* certificate = kept != nullptr ? X509_OBJECT_get0_X509(kept) : nullptr;
  const bool lent = certificate != nullptr && X509_OBJECT_set1_X509(found, certificate) == 1;
  if (lent) X509_free(certificate);
  return X509_STORE_unlock(store) == 1 && lent;
}

/// Certificates with that subject. Nearly always the very bytes are there.
int find(X509_LOOKUP* lookup, X509_LOOKUP_TYPE type, const X509_NAME* name, X509_OBJECT* found) {
  const auto* trusted = static_cast<const TrustStore*>(X509_LOOKUP_get_method_data(lookup));
  X509_STORE* store = X509_LOOKUP_get_store(lookup);
  const unsigned char* bytes = nullptr;
  size_t size = 0;
  if (type != X509_LU_X509 || trusted == nullptr ||
      X509_NAME_get0_der(const_cast<X509_NAME*>(name), &bytes, &size) != 1)
    return 0;
  const std::string_view wanted(reinterpret_cast<const char*>(bytes), size);
  bool any = false;
  for (const auto& each : trusted->certificates())
    if (each.subject_name() == wanted) any = add(each, store) || any;
  if (!any)
    for (const auto& each : trusted->certificates())
      if (is_same_name(each.subject_name(), name)) any = add(each, store) || any;
  return any && lend(store, name, found) ? 1 : 0;
}

#if OPENSSL_VERSION_NUMBER < 0x30000000L
int find(X509_LOOKUP* lookup, X509_LOOKUP_TYPE type, X509_NAME* name, X509_OBJECT* found) {
  return find(lookup, type, static_cast<const X509_NAME*>(name), found);
}
#endif

}  // namespace

TrustStore::TrustStore(std::string_view pem) {
  constexpr std::string_view kBegin = "-----BEGIN CERTIFICATE-----", kEnd = "-----END CERTIFICATE-----";
  std::string digits;
  for (size_t begin = pem.find(kBegin); begin != std::string_view::npos; begin = pem.find(kBegin)) {
    pem.remove_prefix(begin + kBegin.size());
    const size_t end = pem.find(kEnd);
    if (end == std::string_view::npos) return;
    digits.clear();
    digits.reserve(end);
    for (const char c : pem.substr(0, end))
      if (c != '\n' && c != '\r' && c != ' ' && c != '\t') digits += c;
    pem.remove_prefix(end + kEnd.size());
    auto der = decode_base64(digits);
    const auto subject = der ? subject_of(*der) : std::nullopt;
    if (subject) certificates_.push_back({std::move(*der), subject->begin, subject->end - subject->begin});
  }
}

bool TrustStore::add_to(void* ssl_context) const {
  static const std::unique_ptr<X509_LOOKUP_METHOD, FreeMethod> method([] {
    X509_LOOKUP_METHOD* made = X509_LOOKUP_meth_new("situla trust store");
    if (made != nullptr) X509_LOOKUP_meth_set_get_by_subject(made, find);
    return made;
  }());
  if (!method) return false;
  X509_LOOKUP* lookup = X509_STORE_add_lookup(SSL_CTX_get_cert_store(static_cast<SSL_CTX*>(ssl_context)), method.get());
  return lookup != nullptr && X509_LOOKUP_set_method_data(lookup, const_cast<TrustStore*>(this)) == 1;
}

}  // namespace situla
