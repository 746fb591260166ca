#include "hooks/import/block_seal.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <climits>
#include <new>

#include <sys/random.h>
#include <unistd.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>

namespace situla {
namespace {

constexpr size_t kSealedAtOnce = size_t{1} << 20U;
constexpr size_t kNonceBytes = 12;
constexpr uint8_t kBlocks = 1, kFragment = 2;

void check(bool done) {
  // AES-256-GCM exists in every build of libcrypto: only memory can be lacking.
  if (!done) throw std::bad_alloc();
}

}  // namespace

Result<SealKey> new_seal_key() {
  SealKey key{};
  if (getrandom(key.data(), key.size(), 0) != static_cast<ssize_t>(key.size())) return fail_errno(errno, "getrandom");
  return key;
}

void BlockSeal::Free::operator()(evp_cipher_ctx_st* context) const {
  EVP_CIPHER_CTX_free(context);
}

BlockSeal::BlockSeal(const SealKey& key) : context_(EVP_CIPHER_CTX_new()) {
  check(context_ && EVP_EncryptInit_ex(context_.get(), EVP_aes_256_gcm(), nullptr, key.data(), nullptr) == 1);
}

void BlockSeal::begin(uint8_t kind, uint64_t place, uint64_t size) {
  std::array<uint8_t, kNonceBytes> nonce{kind};  // then 48 bits of the place and 40 of the size
  for (size_t i = 0; i < 6; ++i) nonce[1 + i] = static_cast<uint8_t>(place >> (8 * i));
  for (size_t i = 0; i < 5; ++i) nonce[7 + i] = static_cast<uint8_t>(size >> (8 * i));
  check(EVP_EncryptInit_ex(context_.get(), nullptr, nullptr, nullptr, nonce.data()) == 1);
}

void BlockSeal::begin_blocks(uint64_t start, uint64_t bytes) {
  begin(kBlocks, start, bytes);
}

void BlockSeal::begin_fragment(uint32_t index, uint32_t size) {
  begin(kFragment, index, size);
}

void BlockSeal::add(std::string_view bytes) {
  int ignored = 0;
  for (; !bytes.empty(); bytes.remove_prefix(std::min<size_t>(bytes.size(), INT_MAX)))
    check(EVP_EncryptUpdate(context_.get(), nullptr, &ignored, reinterpret_cast<const unsigned char*>(bytes.data()),
                            static_cast<int>(std::min<size_t>(bytes.size(), INT_MAX))) == 1);
}

Seal BlockSeal::finish() {
  std::array<unsigned char, sizeof(Seal)> tag{};
  int ignored = 0;
  check(EVP_EncryptFinal_ex(context_.get(), tag.data(), &ignored) == 1 &&
        EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_GCM_GET_TAG, tag.size(), tag.data()) == 1);
  return std::bit_cast<Seal>(tag);
}

bool BlockSeal::matches(const Seal& seal) {
  const Seal actual = finish();
  return CRYPTO_memcmp(actual.data(), seal.data(), sizeof seal) == 0;
}

/// Of bytes of the file, after begin().
Result<Seal> FileSealer::read(uint64_t start, uint64_t bytes) {
  buffer_.resize(kSealedAtOnce);
  while (bytes > 0) {
    const ssize_t count =
        pread(fd_, buffer_.data(), std::min<uint64_t>(bytes, kSealedAtOnce), static_cast<off_t>(start));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno(errno, "read the new image");
    if (count == 0) return fail(ErrorKind::corrupt, "the new image ends too early");
    seal_.add(std::string_view(buffer_).substr(0, static_cast<size_t>(count)));
    start += static_cast<uint64_t>(count);
    bytes -= static_cast<uint64_t>(count);
  }
  return seal_.finish();
}

Result<void> FileSealer::seal(StoredFile& file, const StoredFragment& fragment) {
  if (const uint64_t bytes = file.stored_bytes(); bytes > 0) {
    auto& [known, seal] = blocks_[file.start];
    if (known != bytes) {
      seal_.begin_blocks(file.start, bytes);
      TRY_ASSIGN(seal, read(file.start, bytes));
      known = bytes;
    }
    file.seal = seal;
  }
  if (file.fragment == StoredFile::kNoFragment) return {};
  const auto [found, fresh] = fragments_.try_emplace(file.fragment);
  if (fresh) {
    seal_.begin_fragment(file.fragment, fragment.size);
    TRY_ASSIGN(found->second, read(fragment.start, stored_size(fragment.size)));
  }
  file.fragment_seal = found->second;
  return {};
}

}  // namespace situla
