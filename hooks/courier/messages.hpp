// What may the store program and the courier say to each other? A small closed set, versioned.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <variant>

#include "common/base/result.hpp"

namespace situla::courier_line {

constexpr size_t kMaxBytes = 4096;  ///< of one message
constexpr size_t kMaxText = 2048;

/// The name of a file that node `node` of the step has sent: "image.0".
enum class Kind : uint8_t {
  claim,    ///< what the node does about the image: a Claim (hooks/courier/claim.hpp)
  offer,    ///< where the squashfs file is to be had: a stream::Offer (hooks/courier/stream.hpp)
  image,    ///< the file itself, where nodes cannot connect to each other
  voucher,  ///< what its service account says of that file
};
constexpr Kind last_of(Kind) {
  return Kind::voucher;
}
std::string file_name(Kind kind, uint32_t node);
struct FileName {
  Kind kind = Kind::claim;
  uint32_t node = 0;
};
/// ErrorKind::corrupt for all other names.
Result<FileName> parse_file_name(std::string_view name);

// store program -> courier

/// To all nodes of the step. fds: the file; of an offer the one that is offered. Answer: Sent, in no order.
struct Send {
  Kind kind = Kind::claim;

  static auto fields(auto& it) { return std::tie(it.kind); }
};
/// The file that this node offers. fds: the offer. Answer: Arrived, or Lost.
struct Fetch {
  uint32_t node = 0;
  bool wanted = true;  ///< else its node is told that this one does without

  static auto fields(auto& it) { return std::tie(it.node, it.wanted); }
};

// courier -> store program

struct Sent {
  Kind kind = Kind::claim;
  bool all = false;  ///< every node has it. Of an offer: it was made, and nobody who has heard of it is still waiting
  std::string why;   ///< what sbcast said; of several lines the first

  static auto fields(auto& it) { return std::tie(it.kind, it.all, it.why); }
};
/// A file from another node, whole or not. fds: the file, open for reading; its user may still write to it.
struct Arrived {
  Kind kind = Kind::claim;
  uint32_t node = 0;

  static auto fields(auto& it) { return std::tie(it.kind, it.node); }
};

enum class Loss : uint8_t {
  unreachable,  ///< no connection
  broken,       ///< in the middle
  here          ///< it could not be stored
};
constexpr Loss last_of(Loss) {
  return Loss::here;
}
/// What a node has offered does not come.
struct Lost {
  uint32_t node = 0;
  Loss how = Loss::broken;
  std::string why;

  static auto fields(auto& it) { return std::tie(it.node, it.how, it.why); }
};

using Message = std::variant<Send, Fetch, Sent, Arrived, Lost>;

std::string encode(const Message& message);
/// ErrorKind::corrupt for anything that encode() did not write, another version included.
Result<Message> decode(std::string_view bytes);

}  // namespace situla::courier_line
