#include <algorithm>
#include <chrono>
#include <optional>
#include <random>

#include <poll.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/tcp.hpp"
#include "hooks/courier/feeder.hpp"
#include "hooks/courier/transfer.hpp"

namespace situla::stream {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kNextAddress{250};  // RFC 8305
constexpr std::chrono::seconds kReach{8};               // a lost SYN comes again after 1, 3 and 7
constexpr std::chrono::seconds kSilence{15};            ///< of a source
constexpr std::chrono::seconds kSayAgain{10};
constexpr int kMostSources = 8;
constexpr size_t kBuffer = size_t{1} << 20U;  // bytes

/// This end of a connection to a Feeder.
class Caller {
 public:
  static Result<Caller> call(const std::string& address, uint32_t port, const Key& key, Greeting greeting) {
    TRY_ASSIGN(UniqueFd socket, begin_to_connect(address, port));
    TRY_ASSIGN(greeting.nonce, new_nonce());
    greeting.to = {address, port};
    return Caller(Channel(std::move(socket)), address, key, greeting);
  }
  [[nodiscard]] pollfd wait() const {
    return {channel_.fd(), state_ == State::connects ? short{POLLOUT} : channel_.events(), 0};
  }
  /// Whether the other end has shown that it knows the key.
  Result<bool> go_on() {
    if (state_ == State::connects) {
      TRY(connected(channel_.fd()));
      TRY(set_limits(channel_.fd(), kSilenceMs));
      state_ = State::greets;
      return false;
    }
    TRY(channel_.flush());
    TRY_ASSIGN(const auto word, channel_.hear());
    if (!word) return false;
    if (const auto* challenge = std::get_if<Challenge>(&*word); challenge != nullptr && state_ == State::greets) {
      greeting_.proof = prove_greeting(key_, challenge->nonce, greeting_);
      expected_ = prove_welcome(key_, challenge->nonce, greeting_);
      channel_.say(greeting_);
      state_ = State::waits;
      TRY(channel_.flush());
      return false;
    }
    const auto* welcome = std::get_if<Welcome>(&*word);
    if (welcome == nullptr || state_ != State::waits || !is_same(welcome->proof, expected_))
      return fail(ErrorKind::denied, "who answers does not know the key");
    return true;
  }
  [[nodiscard]] const std::string& address() const { return address_; }
  Channel take() { return std::move(channel_); }

 private:
  enum class State : uint8_t { connects, greets, waits };
  Caller(Channel channel, std::string address, const Key& key, const Greeting& greeting)
      : channel_(std::move(channel)), address_(std::move(address)), key_(key), greeting_(greeting) {}

  Channel channel_;
  std::string address_;
  Key key_;
  Greeting greeting_;
  Proof expected_{};
  State state_ = State::connects;
};

struct Reached {
  Channel channel;
  std::string address;
};

/// One address after the other, without waiting for each: the first that answers.
Result<Reached> reach(const Offer& offer, const Greeting& greeting) {
  const auto addresses = addresses_elsewhere(offer.addresses);
  std::vector<Caller> callers;
  Error why(ErrorKind::unreachable, "no address of the node answers");
  const auto end = Clock::now() + kReach;
  auto next_at = Clock::now();
  for (size_t next = 0; Clock::now() < end;) {
    if (next < addresses.size() && (callers.empty() || Clock::now() >= next_at)) {
      auto caller = Caller::call(addresses[next++], offer.port, offer.key, greeting);
      if (caller) callers.push_back(std::move(*caller));
      if (!caller) why = Error(ErrorKind::unreachable, caller.error().message());
      next_at = Clock::now() + kNextAddress;
      continue;
    }
    if (callers.empty()) break;
    std::vector<pollfd> wait;
    for (const Caller& caller : callers) wait.push_back(caller.wait());
    if (poll(wait.data(), wait.size(), static_cast<int>(kTick.count())) < 0 && errno != EINTR)
      return fail_errno(errno, "wait for the sender");
    for (size_t i = callers.size(); i > 0; --i) {
      if (wait[i - 1].revents == 0) continue;
      const auto answered = callers[i - 1].go_on();
      if (answered && *answered) return Reached{callers[i - 1].take(), callers[i - 1].address()};
      if (answered) continue;
      why = Error(ErrorKind::unreachable, callers[i - 1].address() + ": " + answered.error().message());
      callers.erase(callers.begin() + static_cast<ptrdiff_t>(i - 1));
    }
  }
  return fail(why);
}

class Fetcher {
 public:
  Fetcher(const Offer& offer, uint32_t node, int file, TcpListener listener, Reached sender)
      : offer_(offer),
        node_(node),
        file_(file),
        sender_(std::move(sender.channel)),
        address_(std::move(sender.address)),
        feeder_(std::move(listener.fd), offer.key, file, offer.bytes, false) {}

  Result<void> run(const std::function<void()>& whole) {
    for (bool told = false;;) {
      if (is_whole() && !told) {
        told = true;
        source_.reset();
        say(Ended{true, ""});
        whole();
      }
      if (!sender_ && (is_whole() || !(source_ || caller_)))
        return is_whole() ? Result<void>() : fail(ErrorKind::network, "the connection is lost: " + why_);
      TRY(turn());
    }
  }

 private:
  [[nodiscard]] bool is_whole() const { return have_ == offer_.bytes; }

  Result<void> turn() {
    constexpr pollfd kNone{-1, 0, 0};
    std::vector<pollfd> wait = {sender_ ? pollfd{sender_->fd(), sender_->events(), 0} : kNone,
                                caller_   ? caller_->wait()
                                : source_ ? pollfd{source_->fd(), POLLIN, 0}
                                          : kNone};
    const size_t guests = wait.size();
    feeder_.wait(wait, have_);
    if (poll(wait.data(), wait.size(), static_cast<int>(kTick.count())) < 0 && errno != EINTR)
      return fail_errno(errno, "wait for the sender");
    if (wait[0].revents != 0) hear();
    if (wait[1].revents != 0) {
      if (caller_)
        on_called();
      else if (source_)
        TRY(on_bytes());
    }
    if ((caller_ || source_) && Clock::now() - moved_ > patience_) lose("it is silent");
    feeder_.serve(&wait[guests], have_);
    return {};
  }

  void say(const Word& word) {
    if (!sender_) return;
    sender_->say(word);
    if (!sender_->flush()) sender_.reset();
  }

  void hear() {
    const auto flushed = sender_->flush();
    const auto word = flushed ? sender_->hear() : fail(flushed.error());
    if (word && !*word) return;
    const auto* source = word ? std::get_if<Source>(&**word) : nullptr;
    if (source == nullptr) return sender_.reset();
    if (is_whole() || ++sources_ > kMostSources) return;
    const bool from_sender = source->address.empty();
    auto caller = Caller::call(from_sender ? address_ : source->address, from_sender ? offer_.port : source->port,
                               offer_.key, {Purpose::bytes, node_, 0, have_, {}, {}, {}});
    moved_ = Clock::now();
    if (caller)
      caller_.emplace(std::move(*caller));
    else
      lose(caller.error().message());
  }

  void on_called() {
    const auto answered = caller_->go_on();
    if (!answered) return lose(answered.error().message());
    if (!*answered) return;
    source_.emplace(caller_->take());
    caller_.reset();
  }

  /// Another source may be had, from the byte on that is lacking.
  void lose(const std::string& why) {
    why_ = why;
    caller_.reset();
    source_.reset();
    if (sources_ < kMostSources)
      say(Lost());
    else
      sender_.reset();
  }

  Result<void> on_bytes() {
    const auto got =
        receive_some(source_->fd(), buffer_.data(), std::min<uint64_t>(buffer_.size(), offer_.bytes - have_));
    if (got && !*got) return {};
    if (!got || **got == 0) {
      lose("it has closed");
      return {};
    }
    if (auto written = write_all(file_, std::string_view(buffer_).substr(0, **got)); !written) {
      say(Ended{false, written.error().message()});
      return written;
    }
    have_ += **got;
    moved_ = Clock::now();
    if (moved_ - said_ > kSayAgain) {
      said_ = moved_;
      say(Moved{have_});
    }
    return {};
  }

  Offer offer_;
  uint32_t node_;
  int file_;
  uint64_t have_ = 0;
  std::optional<Channel> sender_, source_;
  std::optional<Caller> caller_;
  std::string address_, why_ = "the sender has gone";
  Feeder feeder_;
  int sources_ = 0;
  /// Not the same for all behind one that is silent: whoever finds out first goes on giving to the others.
  const std::chrono::milliseconds patience_ = kSilence + std::chrono::milliseconds(std::random_device()() % 10000);
  Clock::time_point moved_ = Clock::now(), said_ = moved_;
  std::string buffer_ = std::string(kBuffer, '\0');
};

/// The last word of a node that gets nothing.
Result<void> end_with(Channel channel, const Ended& ended) {
  channel.say(ended);
  for (const auto end = Clock::now() + kReach; !channel.is_flushed() && Clock::now() < end;) {
    TRY(channel.flush());
    pollfd wait{channel.fd(), POLLOUT, 0};
    if (!channel.is_flushed()) (void)poll(&wait, 1, static_cast<int>(kTick.count()));
  }
  return {};
}

}  // namespace

Result<void> fetch_file(const Offer& offer, uint32_t node, int file, const std::function<void()>& whole) {
  TRY_ASSIGN(TcpListener listener, listen_tcp());
  TRY_ASSIGN(Reached sender, reach(offer, {Purpose::follow, node, listener.port, 0, {}, {}, {}}));
  if (auto room = allocate(file, offer.bytes); !room) {
    TRY(end_with(std::move(sender.channel), {false, room.error().message()}));
    return room;
  }
  return Fetcher(offer, node, file, std::move(listener), std::move(sender)).run(whole);
}

Result<void> decline_file(const Offer& offer, uint32_t node) {
  TRY_ASSIGN(Reached sender, reach(offer, {Purpose::follow, node, 0, 0, {}, {}, {}}));
  return end_with(std::move(sender.channel), {true, ""});
}

}  // namespace situla::stream
