#include "hooks/courier/distribution.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include <poll.h>
#include <unistd.h>

#include "common/base/chance.hpp"
#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/identity.hpp"
#include "common/sys/socket.hpp"
#include "hooks/turn/lease.hpp"

namespace situla {
namespace {

namespace line = courier_line;

constexpr size_t kMostVoucher = size_t{16} << 10U;
constexpr std::chrono::milliseconds kTick{100};
constexpr std::chrono::milliseconds kRetry{500};  // of a claim that did not reach all
constexpr int kMostAtOnce = 4096;                 // messages

/// To the base of two, and straight between its powers: libm would be one more library to load at each start.
double rough_logarithm(double number) {
  double whole = 0;
  for (; number < 1; number *= 2) --whole;
  for (; number >= 2; number /= 2) ++whole;
  return whole + (number - 1);
}

}  // namespace

Distribution::Distribution(StepPlace place, int broker, LogSink& log, const DistributionTimes& options)
    : place_(std::move(place)), broker_(broker), log_(log), options_(options) {
  if (place_.nodes < 2) place_.courier = -1;
}

double how_late(double chance, uint32_t nodes) {
  return std::max(1 + rough_logarithm(chance) / rough_logarithm(std::max(nodes, 2U)), 0.0);
}

/// Not the same for all: they would all speak at once.
std::chrono::milliseconds Distribution::moment() const {
  const auto longest = static_cast<double>(longest_moment().count());
  return std::chrono::milliseconds(static_cast<int64_t>(longest * how_late(draw_chance(), place_.nodes)));
}

std::chrono::milliseconds Distribution::longest_moment() const {
  return options_.quiet * std::bit_width(std::max(place_.nodes, 2U) - 1);
}

bool Distribution::others_are(State state) const {
  return std::any_of(claims_.begin(), claims_.end(),
                     [state](const auto& each) { return each.second.claim.state == state; });
}

bool Distribution::others_are_deaf_to(uint32_t node) const {
  return std::any_of(claims_.begin(), claims_.end(), [node](const auto& each) {
    return each.second.claim.state == State::deaf && each.second.claim.of == node;
  });
}

bool Distribution::is_wanted() const {
  return others_are(State::importing) || others_are(State::waits) || others_are(State::deaf);
}

void Distribution::stop(const std::string& why) {
  if (active() && !why.empty()) log_.debug("images from other nodes of the step: " + why);
  place_.courier = -1;
}

void Distribution::leave(const std::string& why) {
  if (active() && last_said_ == State::importing) end(State::failed);
  stop(why);
}

Result<std::optional<Distribution::Received>> Distribution::receive(const std::function<bool()>& here) {
  receives_ = true;
  auto received = wait_for_another(here);
  receives_ = false;
  decline_offers();
  return received;
}

Result<std::optional<Distribution::Received>> Distribution::wait_for_another(const std::function<bool()>& here) {
  constexpr std::chrono::milliseconds kAtOnce{0};
  auto turn = Clock::now() + (is_first() ? kAtOnce : options_.quiet + moment());
  Clock::time_point claimed, said_at, word;
  std::string said;   // whom is waited for
  bool deaf = false;  // to him
  // A node that was here before goes on.
  TRY(listen_to_all());
  for (claims_it_ = false; active();) {
    const auto now = Clock::now();
    const auto from = leader();
    if (from && *from != place_.node) {
      claims_it_ = false;
      // Of several that spoke at once one goes on. When it fails the others would wait for each other, each for what
      // the other one has said before.
      if (last_said_ == State::importing) say(State::waits);
      TRY_ASSIGN(auto received, take(*from));
      if (received) return received;
      fetch(*from);
      // One of them is enough.
      if (deaf_.count(*from) != 0 && !deaf) word = std::max(word, now + moment());  // the others are it just now, too
      deaf = deaf_.count(*from) != 0;
      if (deaf && now >= word && now - last_claim_ > options_.beat && !others_are_deaf_to(*from)) say(State::deaf);
      if (const std::string who = name_of(*from); said != who || now - said_at > options_.say_again) {
        const uint64_t bytes = claims_[*from].claim.bytes;
        log_.info("waiting for the image from " + who + ", which imports it for the step" +
                  (bytes == 0 ? "" : " and has " + format_size(bytes)));
        if (said != who) {
          // He may be the one who has said so for all until now.
          word = now + moment();
          said_so_ = false;
        }
        said = who;
        said_at = now;
      }
      if (!said_so_ && now >= word) {
        said_so_ = true;
        if (!others_are(State::waits)) say(State::waits);
      }
    } else if (claims_it_) {
      // Who has it already has had time to say so, and words of nodes that spoke at the same time have come: where
      // Slurm is slow they need as long as this one's did. What is still under way tells nobody anything: all of them
      // would lead.
      const auto crossing = std::min<Clock::duration>(3 * (heard_of_.value_or(claimed) - claimed), options_.reach);
      const auto settled = heard_of_               ? *heard_of_ + options_.settle + crossing
                           : claims_under_way_ > 0 ? claimed + options_.reach
                                                   : claimed + 4 * options_.settle;
      if (is_first() || now >= settled) {
        leads_ = true;
        return std::nullopt;
      }
    } else if (!said.empty()) {
      // Who was waited for has failed, or is silent.
      said.clear();
      turn = now + options_.quiet + moment();
      if (++attempts_ >= options_.attempts) leave("no node has brought one");
    } else if (now >= turn) {
      claims_it_ = true;
      claimed = now;
      heard_of_.reset();
      say(State::importing);
    }
    if (leads_ || !active()) continue;
    TRY(listen(is_first() && claims_it_ ? kAtOnce : kTick));
    if (here()) {
      leads_ = last_said_ == State::importing;  // others may wait for this one
      return std::nullopt;
    }
  }
  return std::nullopt;
}

/// What a node has sent, when all of it is there.
Result<std::optional<Distribution::Received>> Distribution::take(uint32_t node) {
  const auto voucher = vouchers_.find(node);
  const auto image = images_.find(node);
  if (voucher == vouchers_.end() || image == images_.end()) return std::nullopt;
  if (voucher->second) return Received{*voucher->second, std::move(image->second), name_of(node)};
  const Error why = voucher->second.error();
  refuse(why);
  return std::nullopt;
}

/// What a node offers, if it does. A connection may break off once.
void Distribution::fetch(uint32_t node) {
  const auto offer = offers_.find(node);
  if (offer == offers_.end() || !active() || offer->second.under_way || deaf_.count(node) != 0 ||
      images_.count(node) != 0)
    return;
  ++offer->second.attempts;
  offer->second.under_way = true;
  if (!send_packet(place_.courier, line::encode(line::Fetch{node, true}), {offer->second.offer.get()}))
    stop("the courier is gone");
}

/// Of nodes from which nothing was fetched: they need not wait for this one.
void Distribution::decline_offers() {
  for (const auto& [node, offered] : offers_)
    if (active() && offered.attempts == 0 &&
        !send_packet(place_.courier, line::encode(line::Fetch{node, false}), {offered.offer.get()}))
      stop("the courier is gone");
  offers_.clear();
}

void Distribution::forget(uint32_t node) {
  claims_.erase(node);
  images_.erase(node);
  vouchers_.erase(node);
  offers_.erase(node);
  deaf_.erase(node);
}

void Distribution::refuse(const Error& why) {
  const auto from = leader();
  if (!from || *from == place_.node) return;
  log_.warning("the image that " + name_of(*from) + " has sent is refused: " + why.message());
  ignored_.insert(*from);
  forget(*from);
  if (++attempts_ >= options_.attempts) leave("images were refused");
}

void Distribution::beat(uint64_t bytes) {
  bytes_ = bytes;
  if (active() && leads_) (void)listen_to_all();
  // Where a few nodes are not reached the others need not import it, too.
  if (active() && leads_ && missed_ && !is_wanted() && Clock::now() - *missed_ > options_.reach)
    return end(State::alone);
  if (active() && leads_ && Clock::now() - last_claim_ > (all_reached_ ? options_.beat : kRetry)) say(State::importing);
}

void Distribution::has_it() {
  if (leads_) say(State::storing);
}

void Distribution::go_on() {
  if (!active() || !leads_) return;
  (void)listen_to_all();
  if (Clock::now() - last_claim_ > options_.beat) say(State::has);
}

void Distribution::send(int image, const std::function<Result<Voucher>()>& vouch) {
  leads_ = true;
  heard_of_.reset();  // what was said before may have been said to others, who waited for another node
  // Who waits says so within a moment; and every node has a place for the file, and knows that it comes, first.
  bool told = false;
  for (const auto end = Clock::now() + options_.prepared; active() && Clock::now() < end;) {
    if (is_wanted() && all_reached_ && told && claims_under_way_ == 0) break;
    if (is_wanted() && !told && claims_under_way_ == 0) {
      say(State::has);
      told = true;
    }
    if (!is_wanted() && heard_of_ && Clock::now() > *heard_of_ + longest_moment() + kTick) return;
    if (Clock::now() - last_claim_ > kRetry) say(State::has);
    if (!listen(kTick)) return;
  }
  if (!active() || !is_wanted()) return;
  log_.debug("sending the image to the other " + std::to_string(place_.nodes - 1) + " nodes of the step");
  std::string why = "the courier is lost";
  if (send_image(image, vouch, why)) {
    claims_.clear();  // who comes now asks anew
    return;
  }
  log_.warning("the image could not be sent to all nodes of the step, which import it themselves: " + why);
  end(State::alone);
}

bool Distribution::send_image(int image, const std::function<Result<Voucher>()>& vouch, std::string& why) {
  std::optional<Clock::time_point> deaf_since;
  const auto wait_for = [&](line::Kind kind) {
    while (active() && sent_.count(kind) == 0) {
      if (!deaf_since && others_are_deaf_to(place_.node)) deaf_since = Clock::now();
      if (kind == line::Kind::offer && deaf_since && Clock::now() > *deaf_since + options_.fetched) return true;
      if (Clock::now() - last_claim_ > options_.beat) say(State::has);
      if (!listen(kTick)) return false;
    }
    if (!active()) return false;
    why = sent_[kind].why;
    return sent_[kind].all;
  };
  const bool by_sbcast = others_are_deaf_to(place_.node);
  if (!ship(by_sbcast ? line::Kind::image : line::Kind::offer, image)) return false;
  // Meanwhile.
  const auto voucher = vouch();
  const auto credential = voucher ? sign(*voucher) : fail(voucher.error());
  if (!credential) {
    why = credential.error().message();
    return false;
  }
  const auto file = sealed_memory("situla-voucher", *credential);
  if (!file || !ship(line::Kind::voucher, file->get())) return false;
  if (by_sbcast) return wait_for(line::Kind::image) && wait_for(line::Kind::voucher);
  const bool offered = wait_for(line::Kind::offer);
  if (offered && !others_are_deaf_to(place_.node)) return wait_for(line::Kind::voucher);
  log_.debug("some nodes cannot connect to this one: sbcast takes the image to all" + (offered ? "" : ": " + why));
  return ship(line::Kind::image, image) && wait_for(line::Kind::image) && wait_for(line::Kind::voucher);
}

void Distribution::give_up() {
  if (leads_) end(State::failed);
}

/// The last word, which is to reach the others before this process ends, and after all others: two that are under way
/// may come in any order, and who hears last that the image is being stored waits long for it.
void Distribution::end(State state) {
  const auto let_arrive = [this] {
    for (const auto end = Clock::now() + options_.beat; active() && claims_under_way_ > 0 && Clock::now() < end;)
      if (!listen(kTick, false)) break;
  };
  let_arrive();
  say(state);
  let_arrive();
  leads_ = false;
}

void Distribution::answer(int image, const std::function<Result<Voucher>()>& vouch) {
  for (const auto end = Clock::now() + options_.open; active() && Clock::now() < end;) {
    if (!listen(kTick)) return;
    if (!is_wanted()) continue;
    say(State::has);
    return send(image, vouch);
  }
}

// The courier.

/// Of many nodes many words may have come since the last time.
Result<void> Distribution::listen_to_all() {
  for (int messages = 0; active() && messages < kMostAtOnce; ++messages) {
    pollfd entry{place_.courier, POLLIN, 0};
    if (poll(&entry, 1, 0) <= 0) break;
    TRY(listen(std::chrono::milliseconds(0)));
  }
  return {};
}

Result<void> Distribution::listen(std::chrono::milliseconds limit, bool until_cancelled) {
  std::array<pollfd, 2> wait{{{place_.courier, POLLIN, 0}, {until_cancelled ? broker_ : -1, POLLRDHUP, 0}}};
  const int ready = poll(wait.data(), wait.size(), static_cast<int>(limit.count()));
  if (ready < 0 && errno != EINTR) return fail_errno(errno, "wait for the courier");
  if (ready <= 0) return {};
  if (wait[1].revents != 0) return fail(ErrorKind::cancelled, "");
  auto packet = receive_packet(place_.courier, line::kMaxBytes);
  if (!packet || !*packet) {
    stop("the courier is gone");
    return {};
  }
  const auto message = line::decode((*packet)->bytes);
  if (const auto* sent = message ? std::get_if<line::Sent>(&*message) : nullptr) {
    hear(*sent);
    return {};
  }
  if (const auto* lost = message ? std::get_if<line::Lost>(&*message) : nullptr) {
    hear(*lost);
    return {};
  }
  const auto* arrived = message ? std::get_if<line::Arrived>(&*message) : nullptr;
  if (arrived == nullptr || (*packet)->fds.size() != 1)
    return fail(ErrorKind::corrupt, "the courier sent a message out of turn");
  return hear(*arrived, std::move((*packet)->fds[0]));
}

Result<void> Distribution::hear(const line::Arrived& arrived, UniqueFd file) {
  if (arrived.node >= place_.nodes || arrived.node == place_.node || ignored_.count(arrived.node) != 0) return {};
  if (arrived.kind == line::Kind::image) {
    images_.insert_or_assign(arrived.node, std::move(file));
    if (const auto offer = offers_.find(arrived.node); offer != offers_.end()) offer->second.under_way = false;
    return {};
  }
  if (arrived.kind == line::Kind::offer) {
    offers_.insert_or_assign(arrived.node, Offered{std::move(file), 0, false});
    deaf_.erase(arrived.node);
    if (!receives_) decline_offers();
    return {};
  }
  const auto bytes = read_all(file.get(), kMostVoucher);
  if (!bytes) return {};  // the user writes there as he likes
  if (arrived.kind == line::Kind::voucher) {
    if (!receives_) return {};
    vouchers_.insert_or_assign(arrived.node, check_signed(*bytes, place_.step, place_.uid));
    claims_.try_emplace(arrived.node, Heard{{State::has, "node " + std::to_string(arrived.node), 0}, Clock::now()});
    return {};
  }
  hear_claim(arrived.node, *bytes);
  return {};
}

void Distribution::hear_claim(uint32_t node, std::string_view bytes) {
  const auto claim = decode_claim(bytes);
  if (!claim) return;
  if (claim->state == State::alone) stop("node " + std::to_string(node) + " cannot send it to all");
  if (claim->state == State::failed)
    forget(node);
  else
    claims_.insert_or_assign(node, Heard{*claim, Clock::now()});
}

void Distribution::hear(const line::Lost& lost) {
  const auto offer = offers_.find(lost.node);
  if (offer == offers_.end()) return;
  offer->second.under_way = false;
  const std::string what = "the image did not come from " + name_of(lost.node) + ": " + printable(lost.why);
  if (lost.how == line::Loss::here) {
    log_.warning(what + "; importing it here");
    return stop("what comes cannot be stored");
  }
  log_.debug(what);
  if (lost.how == line::Loss::unreachable || offer->second.attempts >= options_.attempts) deaf_.insert(lost.node);
}

void Distribution::hear(const line::Sent& sent) {
  if (sent.kind == line::Kind::claim) {
    if (claims_under_way_ > 0) --claims_under_way_;
    all_reached_ = all_reached_ || sent.all;
    if (sent.all && !heard_of_) heard_of_ = Clock::now();
    if (all_reached_)
      missed_.reset();
    else if (!missed_)
      missed_ = Clock::now();
    if (!sent.all) log_.debug("a claim did not reach all nodes of the step: " + sent.why);
    return;
  }
  sent_[sent.kind] = sent;
}

bool Distribution::ship(line::Kind kind, int file) {
  if (!active()) return false;
  sent_.erase(kind);
  if (send_packet(place_.courier, line::encode(line::Send{kind}), {file})) return true;
  stop("the courier is gone");
  return false;
}

void Distribution::say(State state) {
  if (!active() || (claims_under_way_ > 0 && state < State::failed)) return;
  last_claim_ = Clock::now();
  const auto file = sealed_memory("situla-claim", encode(Claim{state, host_name(), bytes_, leader().value_or(0)}));
  if (!file || !ship(line::Kind::claim, file->get())) return;
  last_said_ = state;
  ++claims_under_way_;
}

std::optional<uint32_t> Distribution::leader() const {
  const auto now = Clock::now();
  std::optional<uint32_t> best;
  bool best_has = false;
  for (const auto& [node, heard] : claims_) {
    // Its image and its voucher say enough.
    const bool is_there = vouchers_.count(node) != 0 && images_.count(node) != 0;
    const bool has = heard.claim.state == State::has;
    const auto silent = now - heard.when;
    // Bytes that come say enough, too: they end when the node is lost.
    const auto offer = offers_.find(node);
    const bool may_be_silent =
        heard.claim.state == State::storing || (offer != offers_.end() && offer->second.under_way);
    if (heard.claim.state == State::waits || heard.claim.state == State::deaf ||
        (!is_there && silent > (may_be_silent ? options_.slow : options_.stale)))
      continue;
    if (!best || (has && !best_has)) {
      best = node;
      best_has = has;
    }
  }
  if (claims_it_ && (!best || (!best_has && place_.node < *best))) return place_.node;
  return best;
}

std::string Distribution::name_of(uint32_t node) const {
  const auto found = claims_.find(node);
  return found == claims_.end() ? "node " + std::to_string(node) : printable(found->second.claim.node);
}

}  // namespace situla
