#include "hooks/courier/stream.hpp"

#include <new>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "common/base/wire.hpp"

namespace situla::stream {
namespace {

constexpr size_t kMostWord = 512;
constexpr WireForm kOfferForm{.what = "offer", .version = 0x534f0001, .most_bytes = kMostOffer, .most_text = 64};
constexpr WireForm kWordForm{
    .what = "word between nodes", .version = 0x53570001, .most_bytes = kMostWord, .most_text = 256};

template <size_t N>
Result<std::array<uint8_t, N>> random_bytes() {
  std::array<uint8_t, N> bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1)
    return fail(ErrorKind::failure, "no random numbers are to be had");
  return bytes;
}

Proof prove(const Key& key, std::string_view who, const Nonce& challenge, Greeting greeting) {
  greeting.proof = {};
  WireWriter said(kWordForm);
  said.put(std::string(who));
  said.put(challenge);
  said.put(greeting);
  const std::string text = said.take();
  Proof proof{};
  unsigned size = proof.size();
  // Only memory can be lacking.
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
           text.size(), proof.data(), &size) == nullptr)
    throw std::bad_alloc();
  return proof;
}

}  // namespace

std::string encode(const Offer& offer) {
  return to_wire(offer, kOfferForm);
}
Result<Offer> decode_offer(std::string_view bytes) {
  return from_wire<Offer>(bytes, kOfferForm);
}

Result<Nonce> new_nonce() {
  return random_bytes<std::tuple_size_v<Nonce>>();
}
Result<Key> new_key() {
  return random_bytes<std::tuple_size_v<Key>>();
}
Proof prove_greeting(const Key& key, const Nonce& challenge, const Greeting& greeting) {
  return prove(key, "situla greeting", challenge, greeting);
}
Proof prove_welcome(const Key& key, const Nonce& challenge, const Greeting& greeting) {
  return prove(key, "situla welcome", challenge, greeting);
}
bool is_same(const Proof& one, const Proof& other) {
  return CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

Channel::Channel(UniqueFd socket) : frames_(std::move(socket), kMostWord) {}

void Channel::say(const Word& word) {
  frames_.say(to_wire(word, kWordForm));
}

Result<std::optional<Word>> Channel::hear() {
  TRY_ASSIGN(const auto frame, frames_.hear());
  if (!frame) return std::nullopt;
  TRY_ASSIGN(Word word, from_wire<Word>(*frame, kWordForm));
  return word;
}

}  // namespace situla::stream
