#include "hooks/courier/distribution.hpp"

#include <atomic>
#include <thread>

#include <fcntl.h>
#include <poll.h>

#include <catch2/catch.hpp>

#include "common/sys/fd_path.hpp"
#include "common/sys/file.hpp"
#include "common/sys/socket.hpp"
#include "tests/support/memory_log.hpp"

using namespace situla;
using Catch::Contains;

namespace {

DistributionTimes quick() {
  DistributionTimes times;
  times.quiet = std::chrono::milliseconds(50);
  times.settle = std::chrono::milliseconds(100);
  times.beat = std::chrono::milliseconds(100);
  times.stale = std::chrono::milliseconds(600);
  times.open = std::chrono::milliseconds(500);
  times.prepared = std::chrono::milliseconds(500);
  return times;
}

/// The couriers of a step, and what its nodes have sent: what one sends reaches all others that are there.
class Net {
 public:
  explicit Net(uint32_t nodes) {
    for (uint32_t node = 0; node < nodes; ++node) {
      auto pair = socket_pair();
      REQUIRE(pair);
      stores_.push_back(std::move(pair->first));
      couriers_.push_back(std::move(pair->second));
    }
    auto broker = socket_pair();
    REQUIRE(broker);
    broker_ = std::move(broker->first);
    broker_end_ = std::move(broker->second);
    thread_ = std::thread([this] { carry(); });
  }
  Net(const Net&) = delete;
  Net& operator=(const Net&) = delete;
  ~Net() {
    stops_ = true;
    thread_.join();
  }
  Distribution node(uint32_t number, LogSink& log) {
    const auto nodes = static_cast<uint32_t>(stores_.size());
    return Distribution({stores_.at(number).get(), number, nodes, "7.0", 1000}, broker_.get(), log, quick());
  }
  /// Nothing of it comes any more.
  void lose(uint32_t node) { lost_ = static_cast<int>(node); }
  void break_images() { breaks_images_ = true; }
  /// What is offered does not come. Before anything is sent.
  void break_offers(const std::string& why, bool here) {
    lost_word_ = why;
    lost_here_ = here;
  }
  [[nodiscard]] int images() const { return images_; }
  [[nodiscard]] int offers() const { return offers_; }
  [[nodiscard]] int declined() const { return declined_; }
  void cancel() { broker_end_.reset(); }

 private:
  void carry() {
    while (!stops_) {
      for (uint32_t from = 0; from < couriers_.size(); ++from)
        if (wait_for_packet(couriers_[from].get(), std::chrono::milliseconds(1))) carry_from(from);
    }
  }
  void carry_from(uint32_t from) {
    auto packet = receive_packet(couriers_[from].get(), courier_line::kMaxBytes);
    if (!packet || !*packet) return;
    const auto message = courier_line::decode((*packet)->bytes);
    if (!message) return;
    if (const auto* wanted = std::get_if<courier_line::Fetch>(&*message))
      return fetch(from, *wanted, (*packet)->fds[0].get());
    const courier_line::Kind kind = std::get<courier_line::Send>(*message).kind;
    if (kind == courier_line::Kind::image) ++images_;
    if (kind == courier_line::Kind::offer) ++offers_;
    const bool fails = kind == courier_line::Kind::image && breaks_images_;
    for (uint32_t to = 0; to < couriers_.size() && !fails && lost_ != static_cast<int>(from); ++to)
      if (to != from) {
        const auto file = open_file(fd_path((*packet)->fds[0].get()), O_RDONLY);
        if (file)
          (void)send_packet(couriers_[to].get(), courier_line::encode(courier_line::Arrived{kind, from}), {file->get()},
                            Wait::no);
      }
    (void)send_packet(couriers_[from].get(),
                      courier_line::encode(courier_line::Sent{kind, !fails, fails ? "node2: disk full" : ""}), {},
                      Wait::no);
  }

  /// What is offered is the image.
  void fetch(uint32_t to, const courier_line::Fetch& wanted, int image) {
    if (!wanted.wanted) {
      ++declined_;
      return;
    }
    const auto file = open_file(fd_path(image), O_RDONLY);
    if (const std::string why = lost_word_; !why.empty())
      (void)send_packet(couriers_[to].get(),
                        courier_line::encode(courier_line::Lost{
                            wanted.node, lost_here_ ? courier_line::Loss::here : courier_line::Loss::broken, why}),
                        {}, Wait::no);
    else if (file)
      (void)send_packet(couriers_[to].get(),
                        courier_line::encode(courier_line::Arrived{courier_line::Kind::image, wanted.node}),
                        {file->get()}, Wait::no);
  }

  std::vector<UniqueFd> stores_, couriers_;
  UniqueFd broker_, broker_end_;
  std::thread thread_;
  std::atomic<bool> stops_ = false, breaks_images_ = false;
  std::string lost_word_;
  bool lost_here_ = false;
  std::atomic<int> lost_ = -1, images_ = 0, offers_ = 0, declined_ = 0;
};

/// One node, whose courier and other nodes are the test's.
struct ByHand {
  ByHand(uint32_t number, uint32_t nodes, std::chrono::milliseconds beat)
      : between(make_pair_of_sockets()),
        broker(make_pair_of_sockets()),
        node({between.first.get(), number, nodes, "7.0", 1000}, broker.first.get(), log, beating(beat)) {}
  /// The next word; none within ten seconds: nullopt.
  [[nodiscard]] std::optional<Claim::State> said() const {
    if (!wait_for_packet(between.second.get(), std::chrono::seconds(10))) return std::nullopt;
    const auto packet = receive_packet(between.second.get(), courier_line::kMaxBytes);
    if (!packet || !*packet || (*packet)->fds.size() != 1) return std::nullopt;
    const auto bytes = read_all((*packet)->fds[0].get(), 4096);
    const auto claim = bytes ? decode_claim(*bytes) : fail(bytes.error());
    return claim ? std::optional(claim->state) : std::nullopt;
  }
  [[nodiscard]] bool speaks() const {
    return wait_for_packet(between.second.get(), std::chrono::milliseconds(200)).has_value();
  }
  void has_reached_all() const {
    CHECK(send_packet(between.second.get(),
                      courier_line::encode(courier_line::Sent{courier_line::Kind::claim, true, ""})));
  }
  void comes(uint32_t from, Claim::State state) const {
    const auto file = sealed_memory("claim", encode(Claim{state, "node" + std::to_string(from), 0, 0}));
    REQUIRE(file);
    CHECK(send_packet(between.second.get(),
                      courier_line::encode(courier_line::Arrived{courier_line::Kind::claim, from}), {file->get()}));
  }

  std::pair<UniqueFd, UniqueFd> between, broker;
  test::MemoryLog log;
  Distribution node;

 private:
  static std::pair<UniqueFd, UniqueFd> make_pair_of_sockets() {
    auto made = socket_pair();
    REQUIRE(made);
    return std::move(*made);
  }
  static DistributionTimes beating(std::chrono::milliseconds beat) {
    auto times = quick();
    times.beat = beat;
    return times;
  }
};

const auto kNever = [] { return false; };
Result<Voucher> no_voucher() {
  return fail(ErrorKind::denied, "nobody vouches here");
}

}  // namespace

TEST_CASE("of a thousand nodes few speak before one word has reached them all, and one does at once") {
  for (const uint32_t nodes : {2U, 8U, 1000U}) {
    int at_once = 0, in_a_tenth = 0, in_half = 0;
    for (uint32_t i = 1; i <= nodes; ++i) {
      const double late = how_late(static_cast<double>(i) / nodes, nodes);
      CHECK((late >= 0 && late <= 1));
      at_once += late == 0 ? 1 : 0;
      in_a_tenth += late <= 0.1 ? 1 : 0;
      in_half += late <= 0.5 ? 1 : 0;
    }
    CAPTURE(nodes);
    CHECK(at_once >= 1);
    CHECK(in_a_tenth <= 2);
    CHECK(in_half <= 32);
  }
}

TEST_CASE("who imports for many hears all of them, and goes on to say so") {
  auto ends = socket_pair();
  REQUIRE(ends);
  const int courier = ends->second.get();
  auto broker = socket_pair();
  REQUIRE(broker);
  test::MemoryLog log;
  Distribution distribution({ends->first.get(), 0, 200, "7.0", 1000}, broker->first.get(), log, quick());
  const auto said = [&] {
    int claims = 0;
    for (pollfd entry{courier, POLLIN, 0}; poll(&entry, 1, 0) == 1; ++claims)
      REQUIRE(receive_packet(courier, courier_line::kMaxBytes));
    return claims;
  };
  REQUIRE_FALSE(distribution.receive(kNever).value());
  REQUIRE(distribution.leads());
  CHECK(said() == 1);
  for (uint32_t node = 1; node <= 100; ++node) {
    const auto words = sealed_memory("test", encode(Claim{Claim::State::waits, "n" + std::to_string(node), 0, 0}));
    REQUIRE(words);
    REQUIRE(send_packet(courier, courier_line::encode(courier_line::Arrived{courier_line::Kind::claim, node}),
                        {words->get()}));
  }
  REQUIRE(send_packet(courier, courier_line::encode(courier_line::Sent{courier_line::Kind::claim, true, ""})));
  std::this_thread::sleep_for(quick().beat * 2);
  distribution.beat(1);
  CHECK(said() == 1);
}

TEST_CASE("names of files that nodes send") {
  CHECK(courier_line::file_name(courier_line::Kind::image, 12) == "image.12");
  const auto name = courier_line::parse_file_name("voucher.0");
  REQUIRE(name);
  CHECK(name->kind == courier_line::Kind::voucher);
  CHECK(name->node == 0);
  for (const char* wrong :
       {"", "image", "image.", "image.01", "image.-1", "image.4294967296", "x.0", "image.0.1", ".0"})
    CHECK_FALSE(courier_line::parse_file_name(wrong));
}

TEST_CASE("a step of one node shares nothing") {
  test::MemoryLog log;
  Distribution one({-1, 0, 1, "7.0", 1000}, -1, log, quick());
  CHECK_FALSE(one.active());
  const auto received = one.receive(kNever);
  REQUIRE(received);
  CHECK_FALSE(*received);
  CHECK_FALSE(one.leads());
}

TEST_CASE("the first node imports at once, the others wait for it, and hear when they need not any more") {
  Net net(3);
  test::MemoryLog log, others;
  Distribution first = net.node(0, log), second = net.node(1, others);
  const auto turn = first.receive(kNever);
  REQUIRE(turn);
  CHECK(first.leads());
  std::thread waiting([&] {
    const auto received = second.receive(kNever);
    CHECK(received);
    // What it waited for cannot be sent to all.
    CHECK((received && !*received && !second.active()));
  });
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    first.beat(4711);
  }
  net.break_images();
  const auto file = sealed_memory("image", "squashfs");
  first.send(file->get(), no_voucher);
  waiting.join();
  CHECK(net.offers() == 1);
  CHECK_THAT(others.text(), Contains("waiting for the image from "));
  CHECK_THAT(log.text(), Contains("could not be sent to all nodes"));
}

TEST_CASE("nothing is sent when nobody waits") {
  Net net(2);
  test::MemoryLog log;
  Distribution first = net.node(0, log);
  REQUIRE(first.receive(kNever));
  const auto file = sealed_memory("image", "squashfs");
  first.send(file->get(), no_voucher);
  CHECK(net.images() + net.offers() == 0);
  CHECK(log.text().empty());
}

TEST_CASE("who has the image already answers those that ask") {
  Net net(2);
  test::MemoryLog log, others;
  Distribution first = net.node(0, log), second = net.node(1, others);
  net.break_images();
  std::thread waiting([&] { CHECK(second.receive(kNever)); });
  const auto file = sealed_memory("image", "squashfs");
  first.answer(file->get(), no_voucher);
  waiting.join();
  CHECK(net.offers() == 1);
}

TEST_CASE("another node takes the place of one that is silent, and of one that gives up") {
  for (const bool silent : {true, false}) {
    Net net(2);
    test::MemoryLog log, others;
    Distribution first = net.node(0, log), second = net.node(1, others);
    REQUIRE(first.receive(kNever));
    std::thread waiting([&] {
      const auto turn = second.receive(kNever);
      CHECK((turn && !*turn && second.leads()));
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    if (silent)
      net.lose(0);
    else
      first.give_up();
    waiting.join();
    CHECK_THAT(others.text(), Contains("waiting for the image from "));
  }
}

TEST_CASE("who comes to import after the node that failed hears who else waits, and sends") {
  // By chance one of them has said so for both, and is the one that comes to import.
  for (int round = 0; round < 4; ++round) {
    Net net(3);
    test::MemoryLog log, others, third;
    Distribution first = net.node(0, log), second = net.node(1, others), last = net.node(2, third);
    REQUIRE(first.receive(kNever));
    const auto image = sealed_memory("image", "squashfs");
    const auto import_if_it_is_its_turn = [&](Distribution& node) {
      const auto turn = node.receive(kNever);
      CHECK((turn && !*turn));
      if (!node.leads()) return;
      node.has_it();
      node.send(image->get(), no_voucher);
    };
    std::thread waiting([&] { import_if_it_is_its_turn(second); });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    std::thread silent([&] { import_if_it_is_its_turn(last); });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    first.give_up();
    waiting.join();
    silent.join();
    CHECK(net.offers() == 1);
  }
}

TEST_CASE("the word that a node has failed is not on its way beside an earlier one, which could come after it") {
  ByHand net(0, 2, std::chrono::seconds(10));
  REQUIRE(net.node.receive(kNever));
  REQUIRE(net.node.leads());
  CHECK(net.said() == Claim::State::importing);
  std::thread failing([&] { net.node.give_up(); });
  CHECK_FALSE(net.speaks());
  net.has_reached_all();
  CHECK(net.said() == Claim::State::failed);
  net.has_reached_all();
  failing.join();
}

TEST_CASE("of those that spoke at once who yields takes his word back, though others wait as well") {
  ByHand net(2, 4, std::chrono::milliseconds(100));
  std::thread waiting([&] {
    const auto turn = net.node.receive(kNever);
    CHECK((turn && !*turn && net.node.leads()));
  });
  CHECK(net.said() == Claim::State::importing);
  net.comes(1, Claim::State::importing);
  net.comes(3, Claim::State::waits);
  CHECK_FALSE(net.speaks());
  net.has_reached_all();
  CHECK(net.said() == Claim::State::waits);
  net.has_reached_all();
  net.comes(1, Claim::State::failed);
  CHECK(net.said() == Claim::State::importing);
  net.has_reached_all();
  waiting.join();
}

TEST_CASE("where words take long, who has spoken waits as long for what others said at the same time") {
  ByHand net(1, 2, std::chrono::seconds(10));
  std::atomic<bool> here = false, returned = false;
  std::thread waiting([&] {
    const auto turn = net.node.receive([&] { return here.load(); });
    returned = true;
    CHECK((turn && !*turn && net.log.count(LogLevel::info, "waiting for the image from node0") == 1));
  });
  CHECK(net.said() == Claim::State::importing);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  net.has_reached_all();
  std::this_thread::sleep_for(std::chrono::seconds(1));  // less than three times as long, more than `settle`
  CHECK_FALSE(returned);
  net.comes(0, Claim::State::importing);
  CHECK(net.said() == Claim::State::waits);
  here = true;
  waiting.join();
}

TEST_CASE("who has spoken does not fall silent when nothing came, or when the image has come another way") {
  {
    ByHand net(2, 3, std::chrono::milliseconds(100));
    std::thread waiting([&] {
      const auto turn = net.node.receive(kNever);
      CHECK((turn && !*turn && !net.node.leads() && !net.node.active()));
    });
    CHECK(net.said() == Claim::State::importing);
    // That word is still on its way to some.
    for (const uint32_t other : {0U, 1U}) {
      net.comes(other, Claim::State::importing);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      net.comes(other, Claim::State::failed);
    }
    CHECK(net.said() == Claim::State::failed);
    waiting.join();
  }
  ByHand net(1, 2, std::chrono::milliseconds(100));
  std::atomic<bool> here = false;
  std::thread waiting([&] {
    const auto turn = net.node.receive([&] { return here.load(); });
    CHECK((turn && !*turn && net.node.leads()));
  });
  CHECK(net.said() == Claim::State::importing);
  here = true;
  waiting.join();
}

TEST_CASE("who waits stops when the image is there, and when the step is cancelled") {
  Net net(2);
  test::MemoryLog log, others;
  Distribution first = net.node(0, log), second = net.node(1, others);
  REQUIRE(first.receive(kNever));
  int looks = 0;
  const auto received = second.receive([&] { return ++looks > 3; });
  REQUIRE(received);
  CHECK_FALSE(*received);
  CHECK_FALSE(second.leads());
  net.cancel();
  const auto cancelled = second.receive(kNever);
  REQUIRE_FALSE(cancelled);
  CHECK(cancelled.error().kind() == ErrorKind::cancelled);
}

TEST_CASE("what cannot be stored here is imported here; what does not come is said to whom it was to come from") {
  for (const bool here : {true, false}) {
    Net net(3);
    test::MemoryLog log, others, third;
    Distribution first = net.node(0, log), second = net.node(1, others), has_it = net.node(2, third);
    net.break_offers(here ? "No space left on device" : "no route to host", here);
    net.break_images();
    REQUIRE(first.receive(kNever));
    std::thread waiting([&] {
      const auto received = second.receive(kNever);
      CHECK((received && !*received && !second.active()));
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const auto file = sealed_memory("image", "squashfs");
    if (here) {
      // Nobody else waits: what is offered is not wanted any more. Without a voucher the first one gives up, which the
      // second is not to hear before it has looked at the offer.
      first.send(file->get(), [&] {
        if (waiting.joinable()) waiting.join();
        return no_voucher();
      });
      if (waiting.joinable()) waiting.join();
      CHECK_THAT(others.text(), Contains("No space left on device; importing it here"));
    } else {
      first.send(file->get(), no_voucher);
      waiting.join();
      CHECK_THAT(log.text(), Contains("could not be sent to all nodes"));
    }
  }
}

TEST_CASE("who has the image declines what is offered") {
  Net net(3);
  test::MemoryLog log, others, third;
  Distribution first = net.node(0, log), second = net.node(1, others), has_it = net.node(2, third);
  REQUIRE(first.receive(kNever));
  std::thread waiting([&] { CHECK(second.receive(kNever)); });
  const auto image = sealed_memory("image", "squashfs");
  // It answers for half a second at a time here, in which on a busy machine nobody may have asked yet.
  std::thread answering([&] {
    for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
         net.declined() == 0 && std::chrono::steady_clock::now() < end;)
      has_it.answer(image->get(), no_voucher);
  });
  first.send(image->get(), no_voucher);
  waiting.join();
  answering.join();
  CHECK(net.declined() >= 1);
}
