// What do nodes say to each other that hand a file on from one to the next? Both ends show that they know the key of
// the offer before a byte of the file leaves (HMAC, RFC 2104); the key itself came by sbcast, into a directory of the
// job's user. The bytes are not protected on their way: whether the file is the right one says its voucher.
//
//     node that has the file                        each other node
//     listens             <-- Greeting(follow) ---  connects
//                         --- Source ------------>  from whom the bytes come: the first two from that node, the others
//                                                   from those who came before them
//     (or one of those)   <-- Greeting(bytes) ----  connects
//                         --- bytes ------------->  hands them on while they come
//                         <-- Moved --------------  now and then
//                         <-- Ended --------------  has all of it
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <variant>
#include <vector>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/sys/tcp.hpp"

namespace situla::stream {

constexpr unsigned kSilenceMs = 20000;           ///< of an end that is alive: its kernel answers
constexpr std::chrono::milliseconds kTick{100};  ///< between two looks at the clock

using Key = std::array<uint8_t, 32>;
using Nonce = std::array<uint8_t, 16>;
using Proof = std::array<uint8_t, 32>;

/// The file `offer.N` of a step's directory.
struct Offer {
  std::vector<std::string> addresses;  ///< of the node that has the file, the likeliest first
  uint32_t port = 0;
  Key key{};
  uint64_t bytes = 0;  ///< of the file

  static auto fields(auto& it) { return std::tie(it.addresses, it.port, it.key, it.bytes); }
};
std::string encode(const Offer& offer);
Result<Offer> decode_offer(std::string_view bytes);
constexpr size_t kMostOffer = 4096;

enum class Purpose : uint8_t { follow, bytes };
constexpr Purpose last_of(Purpose) {
  return Purpose::bytes;
}

/// The first word, of who was connected to.
struct Challenge {
  Nonce nonce{};

  static auto fields(auto& it) { return std::tie(it.nonce); }
};
/// From whom the bytes are to be had.
struct Source {
  std::string address;  ///< none: from this node itself
  uint32_t port = 0;

  static auto fields(auto& it) { return std::tie(it.address, it.port); }
};
struct Greeting {
  Purpose purpose = Purpose::follow;
  uint32_t node = 0;
  uint32_t port = 0;  ///< where that node gives on what it has got
  uint64_t from = 0;  ///< the first byte that it lacks
  Source to;          ///< as whom it means to have connected to: a proof that somebody else hands on proves nothing
  Nonce nonce{};
  Proof proof{};

  static auto fields(auto& it) { return std::tie(it.purpose, it.node, it.port, it.from, it.to, it.nonce, it.proof); }
};
/// The answer; then, for Purpose::bytes, the file from that byte on.
struct Welcome {
  Proof proof{};

  static auto fields(auto& it) { return std::tie(it.proof); }
};
/// So many bytes are here by now.
struct Moved {
  uint64_t bytes = 0;

  static auto fields(auto& it) { return std::tie(it.bytes); }
};
/// The source gives nothing any more: another one?
struct Lost {
  static auto fields(auto&) { return std::tuple<>(); }
};
struct Ended {
  bool whole = false;
  std::string why;

  static auto fields(auto& it) { return std::tie(it.whole, it.why); }
};
using Word = std::variant<Challenge, Greeting, Welcome, Source, Moved, Lost, Ended>;

Result<Nonce> new_nonce();
Result<Key> new_key();
/// Of who connects, and of who answers.
Proof prove_greeting(const Key& key, const Nonce& challenge, const Greeting& greeting);
Proof prove_welcome(const Key& key, const Nonce& challenge, const Greeting& greeting);
/// In the same time, wherever they differ.
bool is_same(const Proof& one, const Proof& other);

/// Words on a TCP socket, without waiting: TcpFrames.
class Channel {
 public:
  explicit Channel(UniqueFd socket);
  [[nodiscard]] int fd() const { return frames_.fd(); }
  [[nodiscard]] short events() const { return frames_.events(); }
  void say(const Word& word);
  Result<void> flush() { return frames_.flush(); }
  [[nodiscard]] bool is_flushed() const { return frames_.is_flushed(); }
  /// As TcpFrames::hear(). ErrorKind::corrupt: what comes is no word.
  Result<std::optional<Word>> hear();

 private:
  TcpFrames frames_;
};

}  // namespace situla::stream
