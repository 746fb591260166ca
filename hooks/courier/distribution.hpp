// Which node of a step imports the image that none of them has, and how do the others get it? From that node, so that
// the registry is asked for each byte once.
//
// A node that lacks the image says to all others that it imports it (a claim): node 0 at once, the others when nobody
// has for a moment. The lowest number wins, and one that has the image already before all. Of those who wait some say
// so. Then the node offers the file, the others fetch it, each from another one (stream.hpp), and its voucher comes.
// Where one of them cannot connect, Slurm's sbcast takes the file to all, as it takes claims, offers and vouchers. The
// others wait while claims go on coming, and one of them takes the place of a node whose claims stop. Claims are the
// user's own files and decide only who waits for whom within his own step; the file is believed only by its voucher
// (voucher.hpp).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include <sys/types.h>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "hooks/courier/claim.hpp"
#include "hooks/courier/messages.hpp"
#include "hooks/courier/voucher.hpp"

namespace situla {

/// Where this process is in its step.
struct StepPlace {
  int courier = -1;  ///< to the courier; -1: nothing is shared. Not closed here
  uint32_t node = 0, nodes = 1;
  std::string step;  ///< "123.0"
  uid_t uid = 0;
};

struct DistributionTimes {
  /// So long node 0 has for its claim, and up to as long again by chance for each doubling of the number of nodes.
  std::chrono::milliseconds quiet{500};
  /// From when a claim of another node than 0 has reached all until what follows from it; and three times what it took
  /// to reach them, at most `reach`.
  std::chrono::milliseconds settle{1000};
  std::chrono::milliseconds beat{3000};  ///< between two claims of one node
  /// Whose claims have stopped for so long is not waited for. Claims go by Slurm's controller, which may be busy for
  /// many seconds; a program that ends says so, and a lost node ends most steps.
  std::chrono::milliseconds stale{30000};
  std::chrono::milliseconds slow{120000};  ///< the same of one who is storing it
  /// Where no claim reaches all nodes for so long, and nobody is heard, each imports for itself.
  std::chrono::milliseconds reach{20000};
  std::chrono::milliseconds say_again{30000};  ///< between two words to the user about one node
  std::chrono::milliseconds open{30000};       ///< so long other nodes may ask node 0, if it has the image
  std::chrono::milliseconds prepared{5000};    ///< so long is waited for nodes that cannot receive anything yet
  std::chrono::milliseconds fetched{60000};    ///< so long after one cannot connect the others may go on to fetch
  unsigned attempts = 2;                       ///< then every node asks the registry
};

/// How late one of so many nodes speaks, as a part of the longest wait. Of many few are early, so that one word
/// silences the others: nodes^w speak where a word takes the part w to reach them all. chance: evenly in (0, 1].
double how_late(double chance, uint32_t nodes);

class Distribution {
 public:
  struct Received {
    Voucher voucher;
    UniqueFd file;     ///< its user may still write to it
    std::string node;  ///< the sender's name, as he says
  };

  Distribution(StepPlace place, int broker, LogSink& log, const DistributionTimes& options = {});

  /// Other nodes may have the image, or want it.
  [[nodiscard]] bool active() const { return place_.courier >= 0; }
  /// The image is not here. Waits for another node's, or until it is this node's turn to import: nullopt. here: true
  /// when the image has come by another step of this node. ErrorKind::cancelled: the broker has hung up.
  Result<std::optional<Received>> receive(const std::function<bool()>& here);
  /// What was received is none: the sender is not listened to any more.
  void refuse(const Error& why);

  /// Between receive() and send(), every second or so: the others go on waiting. bytes: fetched so far.
  void beat(uint64_t bytes);
  /// The image is here but for what may take some time.
  void has_it();
  /// Now and then while that, or a voucher, takes time.
  void go_on();
  /// The image is here, and others wait for it or may. Until all have it; or one of them cannot get it: they import.
  void send(int image, const std::function<Result<Voucher>()>& vouch);
  /// Others wait for it in vain.
  void give_up();
  /// Other nodes may still find that they lack the image: answers them for a while, as send().
  void answer(int image, const std::function<Result<Voucher>()>& vouch);
  /// This node imports for the others, or was about to.
  [[nodiscard]] bool leads() const { return leads_; }

 private:
  using State = Claim::State;
  struct Heard {
    Claim claim;
    std::chrono::steady_clock::time_point when;
  };
  using Clock = std::chrono::steady_clock;

  Result<void> listen(std::chrono::milliseconds limit, bool until_cancelled = true);
  Result<void> listen_to_all();
  Result<void> hear(const courier_line::Arrived& arrived, UniqueFd file);
  void hear(const courier_line::Sent& sent);
  void hear(const courier_line::Lost& lost);
  void hear_claim(uint32_t node, std::string_view bytes);
  Result<std::optional<Received>> wait_for_another(const std::function<bool()>& here);
  void fetch(uint32_t node);
  void decline_offers();
  [[nodiscard]] bool others_are_deaf_to(uint32_t node) const;
  /// To all, until all have got it; by sbcast when the other way does not do.
  bool send_image(int image, const std::function<Result<Voucher>()>& vouch, std::string& why);
  void say(State state);
  bool ship(courier_line::Kind kind, int file);
  /// Whose claim counts most, this node's own among them.
  [[nodiscard]] std::optional<uint32_t> leader() const;
  [[nodiscard]] std::string name_of(uint32_t node) const;
  [[nodiscard]] std::chrono::milliseconds longest_moment() const;
  [[nodiscard]] std::chrono::milliseconds moment() const;
  /// Some other node waits, or imports itself for want of an answer.
  [[nodiscard]] bool is_wanted() const;
  [[nodiscard]] bool others_are(State state) const;
  void end(State state);
  /// Node 0 is not made to wait for others, at first.
  [[nodiscard]] bool is_first() const { return place_.node == 0 && attempts_ == 0; }
  Result<std::optional<Received>> take(uint32_t node);
  void forget(uint32_t node);
  void stop(const std::string& why);
  /// stop(), and nobody waits for this node.
  void leave(const std::string& why);

  StepPlace place_;
  int broker_;
  LogSink& log_;
  DistributionTimes options_;
  std::map<uint32_t, Heard> claims_;
  std::map<uint32_t, UniqueFd> images_;
  std::map<uint32_t, Result<Voucher>> vouchers_;  ///< looked at when they come: they do not last for ever
  struct Offered {
    UniqueFd offer;
    unsigned attempts = 0;
    bool under_way = false;
  };
  std::map<uint32_t, Offered> offers_;
  std::set<uint32_t> deaf_;  ///< nodes from which this one gets nothing
  std::set<uint32_t> ignored_;
  std::map<courier_line::Kind, courier_line::Sent> sent_;  ///< answers since the last ship() of that kind
  bool claims_it_ = false;                                 ///< this node
  bool said_so_ = false;                                   ///< that it waits, or others have said so
  bool leads_ = false, all_reached_ = false;
  bool receives_ = false;  ///< offers are of use
  unsigned claims_under_way_ = 0;
  std::optional<Clock::time_point> heard_of_;  ///< since when all others know of the first claim
  std::optional<Clock::time_point> missed_;    ///< since when claims do not reach all
  uint64_t bytes_ = 0;
  unsigned attempts_ = 0;
  Clock::time_point last_claim_{};
  std::optional<State> last_said_;  ///< what others go by until they hear another word, or nothing for long
};

}  // namespace situla
