#include "hooks/courier/feeder.hpp"

#include <algorithm>
#include <cerrno>

#include "common/sys/socket.hpp"
#include "common/sys/tcp.hpp"

namespace situla::stream {
namespace {

constexpr ptrdiff_t kMostStrangers = 256;  ///< who has not shown yet that he knows the key
constexpr std::chrono::seconds kGreetingLimit{10};
constexpr uint64_t kPiece = uint64_t{4} << 20U;

}  // namespace

void Feeder::wait(std::vector<pollfd>& descriptors, uint64_t there) {
  descriptors.push_back({rests_ ? -1 : listener_.get(), POLLIN, 0});
  rests_ = false;
  for (const Guest& guest : guests_) {
    const bool has_more = guest.state == State::fed && guest.next < there;
    descriptors.push_back(
        {guest.channel.fd(), static_cast<short>(guest.channel.events() | (has_more ? POLLOUT : 0)), 0});
  }
}

void Feeder::serve(const pollfd* first, uint64_t there) {
  const auto now = Clock::now();
  for (size_t i = 0; i < guests_.size(); ++i) {
    Guest& guest = guests_[i];
    if (first[1 + i].revents != 0 && !serve(guest, there)) guest.state = State::gone;
    if (guest.state == State::greets && now - guest.since > kGreetingLimit) guest.state = State::gone;
  }
  std::erase_if(guests_, [](const Guest& guest) { return guest.state == State::gone; });
  if (first->revents != 0) accept();
  // The oldest go, so that those who are meant come in.
  const auto is_stranger = [](const Guest& guest) { return guest.state == State::greets; };
  for (auto strangers = std::count_if(guests_.begin(), guests_.end(), is_stranger); strangers > kMostStrangers;
       --strangers)
    guests_.erase(std::find_if(guests_.begin(), guests_.end(), is_stranger));
}

void Feeder::accept() {
  for (int most = 0; most < 64; ++most) {
    auto socket = accept_from(listener_.get());
    const auto challenge = socket ? new_nonce() : fail(socket.error());
    rests_ = !socket && socket.error().errnum() != EAGAIN;  // no descriptors: there may be some in a moment
    if (!challenge || !set_limits(socket->get(), kSilenceMs)) return;
    guests_.push_back(Guest{Channel(std::move(*socket)), State::greets, Clock::now(), *challenge, {}, 0});
    guests_.back().channel.say(Challenge{*challenge});
    if (!guests_.back().channel.flush()) guests_.pop_back();
  }
}

/// An error ends it, whatever it is.
Result<void> Feeder::serve(Guest& guest, uint64_t there) {
  TRY(guest.channel.flush());
  if (guest.state == State::fed) return feed(guest, there);
  TRY_ASSIGN(const auto word, guest.channel.hear());
  if (!word) return {};
  const auto* greeting = std::get_if<Greeting>(&*word);
  const auto here = local_address(guest.channel.fd());
  if (greeting == nullptr || !here || greeting->to.address != here->first || greeting->to.port != here->second ||
      !is_same(greeting->proof, prove_greeting(key_, guest.challenge, *greeting)) || greeting->from > bytes_ ||
      (greeting->purpose == Purpose::follow && !follows_))
    return fail(ErrorKind::denied, "a stranger");
  guest.channel.say(Welcome{prove_welcome(key_, guest.challenge, *greeting)});
  TRY(guest.channel.flush());
  if (greeting->purpose == Purpose::follow) {
    TRY_ASSIGN(std::string address, peer_address(guest.channel.fd()));
    followers_.push_back({std::move(guest.channel), greeting->node, std::move(address), greeting->port});
    guest.state = State::gone;
    return {};
  }
  guest.state = State::fed;
  guest.next = greeting->from;
  return {};
}

Result<void> Feeder::feed(Guest& guest, uint64_t there) {
  // It has nothing to say any more: it can only close.
  TRY(guest.channel.hear());
  if (!guest.channel.is_flushed()) return {};
  for (uint64_t given = 0; given < kPiece && guest.next < there;) {
    TRY_ASSIGN(const uint64_t sent,
               send_some_of(guest.channel.fd(), file_, guest.next, std::min(kPiece, there - guest.next)));
    if (sent == 0) break;
    guest.next += sent;
    given += sent;
  }
  return {};
}

}  // namespace situla::stream
