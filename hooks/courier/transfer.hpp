// How does a file get from one node to all others of its step, when they can connect to each other? As a tree that
// grows as they come: each node gives on what it has got to two others (stream.hpp).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "hooks/courier/stream.hpp"

namespace situla::stream {

/// Listens, and says where: a name service is asked, so in no process that has a capability.
struct Listening {
  UniqueFd listener;
  Offer offer;
};
Result<Listening> listen_for_others(uint64_t bytes);

struct Sending {
  UniqueFd listener;  ///< as the offer says
  Offer offer;
  int file = -1;  ///< not closed here
  uint32_t nodes = 0;
  int delivered = -1;                       ///< a pipe that ends when every node has the offer
  std::chrono::milliseconds late{5000};     ///< after that, for who comes
  std::chrono::milliseconds silent{30000};  ///< so long a node may say nothing
};
/// Until every other node has said that it has the file, does without it, or cannot store it; or some time after the
/// offer has reached all, of those who came: who is not heard of then cannot connect, or his step has ended.
/// ErrorKind::failure: one of them has broken off, or does not get on.
Result<void> send_file(Sending sending);

/// Gets the file, and gives it on, until the sender has no more use for this node. whole: called once, when all of it
/// is there. ErrorKind::unreachable: no connection to the sender; network: lost in the middle; else: it could not be
/// written here.
Result<void> fetch_file(const Offer& offer, uint32_t node, int file, const std::function<void()>& whole);
/// Tells the sender that this node does without.
Result<void> decline_file(const Offer& offer, uint32_t node);

}  // namespace situla::stream
