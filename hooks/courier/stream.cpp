#include "hooks/courier/stream.hpp"

#include <cerrno>
#include <new>

#include <poll.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "common/base/codec.hpp"
#include "common/base/wire.hpp"
#include "common/sys/tcp.hpp"

namespace situla::stream {
namespace {

constexpr size_t kMostWord = 512;
constexpr size_t kLengthBytes = 4;
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

short Channel::events() const {
  return static_cast<short>(out_.empty() ? POLLIN : POLLIN | POLLOUT);
}

void Channel::say(const Word& word) {
  const std::string bytes = to_wire(word, kWordForm);
  Encoder length;
  length.u32(static_cast<uint32_t>(bytes.size()));
  out_ += length.take() + bytes;
}

Result<void> Channel::flush() {
  if (out_.empty()) return {};
  TRY_ASSIGN(const size_t sent, send_some(fd(), out_));
  out_.erase(0, sent);
  return {};
}

/// Whether so many bytes are there.
Result<bool> Channel::fill(size_t bytes) {
  while (in_.size() < bytes) {
    std::array<char, kMostWord> piece{};
    TRY_ASSIGN(const auto got, receive_some(fd(), piece.data(), std::min(piece.size(), bytes - in_.size())));
    if (!got) return false;
    if (*got == 0) return fail_errno(EPIPE, "the other node has closed the connection");
    in_.append(piece.data(), *got);
  }
  return true;
}

Result<std::optional<Word>> Channel::hear() {
  TRY_ASSIGN(const bool has_length, fill(kLengthBytes));
  if (!has_length) return std::nullopt;
  const uint32_t length = Decoder(in_).u32();
  if (length > kMostWord) return fail(ErrorKind::corrupt, "another node's word is too long");
  TRY_ASSIGN(const bool has_all, fill(kLengthBytes + length));
  if (!has_all) return std::nullopt;
  TRY_ASSIGN(Word word, from_wire<Word>(std::string_view(in_).substr(kLengthBytes), kWordForm));
  in_.clear();
  return word;
}

}  // namespace situla::stream
