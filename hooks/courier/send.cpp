#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <string>

#include <poll.h>

#include "common/base/text.hpp"
#include "common/sys/tcp.hpp"
#include "hooks/courier/feeder.hpp"
#include "hooks/courier/transfer.hpp"

namespace situla::stream {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kChildren = 2;
constexpr int kMostChildren = 4;  // of one that has all of it

class Sender {
 public:
  explicit Sender(Sending sending)
      : sending_(std::move(sending)),
        feeder_(std::move(sending_.listener), sending_.offer.key, sending_.file, sending_.offer.bytes, true) {}

  Result<void> run() {
    while (!is_over()) {
      std::vector<pollfd> wait = {{sending_.delivered, POLLIN, 0}};
      for (const Member& member : members_)
        wait.push_back({member.ended ? -1 : member.follower.channel.fd(), member.follower.channel.events(), 0});
      const size_t guests = wait.size();
      feeder_.wait(wait, sending_.offer.bytes);
      if (poll(wait.data(), wait.size(), static_cast<int>(kTick.count())) < 0 && errno != EINTR)
        return fail_errno(errno, "wait for other nodes");
      for (size_t i = 0; i < members_.size(); ++i)
        if (wait[1 + i].revents != 0) hear(members_[i]);
      feeder_.serve(&wait[guests], sending_.offer.bytes);
      drop_silent();
      for (Follower& follower : feeder_.followers()) add(std::move(follower));
      if (wait[0].revents != 0) {
        sending_.delivered = -1;
        delivered_ = Clock::now();
      }
    }
    for (const auto& [node, why] : nodes_)
      if (!why.empty()) return fail(ErrorKind::failure, "node " + std::to_string(node) + " " + why);
    return {};
  }

 private:
  struct Member {
    Follower follower;
    bool ended = false;
    bool fails = false;  ///< nobody is sent to it for the bytes
    int children = 0;
    std::optional<size_t> parent{};  ///< none: this node
    Clock::time_point heard = Clock::now();
  };

  [[nodiscard]] bool is_over() const {
    if (!std::all_of(members_.begin(), members_.end(), [](const Member& one) { return one.ended; })) return false;
    return nodes_.size() + 1 >= sending_.nodes || (delivered_ && Clock::now() > *delivered_ + sending_.late);
  }

  /// In the order in which they come: a node's source has come before it.
  void add(Follower follower) {
    if (members_.size() >= size_t{4} * sending_.nodes) return;
    // A node that comes once more has lost what it had.
    for (Member& member : members_)
      if (member.follower.node == follower.node) member.ended = member.fails = true;
    nodes_[follower.node].clear();
    members_.push_back({.follower = std::move(follower)});
    Member& member = members_.back();
    if (member.follower.port == 0) return direct(member, std::nullopt);  // it does without
    const size_t place = tree_.size();
    tree_.push_back(members_.size() - 1);
    const auto parent = place < kChildren ? std::nullopt : std::optional(tree_[place / kChildren - 1]);
    direct(member, parent && members_[*parent].fails ? std::nullopt : parent);
  }

  void direct(Member& member, std::optional<size_t> parent) {
    member.parent = parent;
    Source source;
    if (parent) {
      ++members_[*parent].children;
      source = {members_[*parent].follower.address, members_[*parent].follower.port};
    }
    member.follower.channel.say(source);
    if (!member.follower.channel.flush()) end(member, "has broken off");
  }

  /// Who has all of it and is asked least, rather than this node: many may have lost the same one.
  void direct_anew(Member& member) {
    if (member.parent) members_[*member.parent].fails = true;
    std::optional<size_t> best;
    for (const size_t other : tree_) {
      const Member& one = members_[other];
      if (&one == &member || !one.ended || one.fails || one.children >= kMostChildren) continue;
      if (!best || one.children < members_[*best].children) best = other;
    }
    direct(member, best);
  }

  void end(Member& member, const std::string& why) {
    member.ended = member.fails = true;
    nodes_[member.follower.node] = why;
  }

  void drop_silent() {
    for (Member& member : members_) {
      if (member.ended || Clock::now() - member.heard < sending_.silent) continue;
      end(member, "does not get on");
      member.follower.channel = Channel(UniqueFd());  // it hears of it
    }
  }

  void hear(Member& member) {
    member.heard = Clock::now();
    Channel& channel = member.follower.channel;
    const auto flushed = channel.flush();
    const auto word = flushed ? channel.hear() : fail(flushed.error());
    if (word && !*word) return;
    if (word && std::holds_alternative<Moved>(**word)) return;
    if (word && std::holds_alternative<Lost>(**word)) return direct_anew(member);
    const auto* said = word ? std::get_if<Ended>(&**word) : nullptr;
    if (said == nullptr) return end(member, "has broken off");
    member.ended = true;
    member.fails = !said->whole;
  }

  Sending sending_;
  Feeder feeder_;
  std::vector<Member> members_;
  std::vector<size_t> tree_;               ///< those who get it, in the order in which they came
  std::map<uint32_t, std::string> nodes_;  ///< that came; how their last connection failed, if it did
  std::optional<Clock::time_point> delivered_;
};

}  // namespace

Result<Listening> listen_for_others(uint64_t bytes) {
  TRY_ASSIGN(TcpListener listener, listen_tcp());
  Listening listening{std::move(listener.fd), {own_addresses(), listener.port, {}, bytes}};
  TRY_ASSIGN(listening.offer.key, new_key());
  return listening;
}

Result<void> send_file(Sending sending) {
  allow_many_descriptors();
  return Sender(std::move(sending)).run();
}

}  // namespace situla::stream
