#include "hooks/registry/sha256.hpp"

#include <array>
#include <new>

#include <openssl/evp.h>

namespace situla {

void Sha256::Free::operator()(evp_md_ctx_st* context) const {
  EVP_MD_CTX_free(context);
}

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  // EVP_sha256 exists in every build of libcrypto, FIPS ones included: only memory can be lacking.
  if (!context_ || EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1) throw std::bad_alloc();
}

void Sha256::update(std::string_view bytes) {
  EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
}

Digest Sha256::finish() {
  std::array<uint8_t, Digest::kBytes> bytes{};
  unsigned size = 0;
  EVP_DigestFinal_ex(context_.get(), bytes.data(), &size);
  return Digest(bytes);
}

Digest digest_of(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

}  // namespace situla
