// Who gets the bytes of a file, and how far is each of them? Of a file that is there, or is still coming.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <poll.h>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "hooks/courier/stream.hpp"

namespace situla::stream {

/// A node that wants to hear from whom it gets the file.
struct Follower {
  Channel channel;
  uint32_t node = 0;
  std::string address;
  uint32_t port = 0;
};

class Feeder {
 public:
  /// follows: whether this node says who gets the bytes from whom. `file` is not closed here.
  Feeder(UniqueFd listener, const Key& key, int file, uint64_t bytes, bool follows)
      : listener_(std::move(listener)), key_(key), file_(file), bytes_(bytes), follows_(follows) {}

  /// Adds what it waits for. there: so many bytes of the file are there.
  void wait(std::vector<pollfd>& descriptors, uint64_t there);
  /// The same descriptors, after poll(2): `first` is the first of them.
  void serve(const pollfd* first, uint64_t there);
  /// Who came since the last call.
  std::vector<Follower> followers() { return std::exchange(followers_, {}); }

 private:
  using Clock = std::chrono::steady_clock;
  enum class State : uint8_t { greets, welcomed, fed, gone };
  struct Guest {
    Channel channel;
    State state = State::greets;
    Clock::time_point since;
    Nonce challenge{};
    Greeting greeting{};
    uint64_t next = 0;  ///< byte
  };

  void accept();
  Result<void> serve(Guest& guest, uint64_t there);
  Result<void> feed(Guest& guest, uint64_t there);

  UniqueFd listener_;
  Key key_;
  int file_;
  uint64_t bytes_;
  bool follows_;
  bool rests_ = false;  ///< until the next look
  std::vector<Guest> guests_;
  std::vector<Follower> followers_;
};

}  // namespace situla::stream
