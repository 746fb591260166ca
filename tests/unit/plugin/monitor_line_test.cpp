// A node speaks with srun's monitor over a network that takes its time.
#include <array>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/socket.hpp"
#include "plugin/step_monitor.hpp"

using namespace situla;
using namespace std::chrono_literals;

namespace {

/// A listener with room for one connection, which another one has: who comes now gets no answer until it is taken, and
/// then with the second SYN, after a second.
struct SlowListener {
  UniqueFd fd{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::vector<UniqueFd> others{};
  sockaddr_in address{};

  SlowListener() {
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(listen(fd.get(), 0) == 0);
    REQUIRE(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    while (connects()) REQUIRE(others.size() < 10);
  }
  bool connects() {
    others.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    (void)connect(others.back().get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
    pollfd entry{others.back().get(), POLLOUT, 0};
    return poll(&entry, 1, 50) == 1;
  }
};

std::optional<MonitorWord> next_word(TcpFrames& frames) {
  for (;;) {
    const auto frame = frames.hear();
    if (!frame) return std::nullopt;
    if (*frame) return decode_monitor_word(**frame).value();
    pollfd entry{frames.fd(), POLLIN, 0};
    if (poll(&entry, 1, 10000) != 1) return std::nullopt;
  }
}

}  // namespace

TEST_CASE("what a node tells the monitor goes when the connection is made, without another word of its own") {
  SlowListener slow;
  MonitorDoor door;
  door.port = ntohs(slow.address.sin_port);
  door.of_monitor.fill(1);
  door.of_nodes.fill(2);
  Environment job;
  job.set(kMonitorVariable, door.text());
  job.set(kSrunAddressVariable, "127.0.0.1");
  job.set("SLURMD_NODENAME", "node7");
  auto line = MonitorLine::of(job);
  REQUIRE(line);

  auto broker = socket_pair().value();
  line->tell(ImportWaits{"the import of job 7.0"});
  CHECK_FALSE(line->is_heard());
  std::string node, waits;
  std::optional<TcpFrames> kept;
  std::thread monitor([&] {
    const size_t before = slow.others.size() - 1;
    for (size_t i = 0; i < before; ++i) (void)accept_from(slow.fd.get());
    for (;;) {
      pollfd entry{slow.fd.get(), POLLIN, 0};
      if (poll(&entry, 1, 10000) != 1) break;
      auto socket = accept_from(slow.fd.get());
      if (!socket) break;
      TcpFrames frames(std::move(*socket), kMostMonitorWord);
      pollfd spoken{frames.fd(), POLLIN, 0};
      if (poll(&spoken, 1, 300) != 1) continue;  // the one that had no room either
      const auto hello = next_word(frames);
      if (!hello || !std::holds_alternative<NodeHello>(*hello)) continue;
      node = std::get<NodeHello>(*hello).node;
      frames.say(encode_monitor_word(MonitorHello{door.of_monitor}));
      (void)frames.flush();
      const auto word = next_word(frames);
      if (word && std::holds_alternative<ImportWaits>(*word)) waits = std::get<ImportWaits>(*word).what;
      kept = std::move(frames);
      break;
    }
    (void)send_packet(broker.second.get(), "the broker's word");
  });
  const auto waited = line->wait_beside(broker.first.get(), 20s);
  monitor.join();
  CHECK(waited);
  CHECK(node == "node7");
  CHECK(waits == "the import of job 7.0");
  CHECK(line->is_heard());
  CHECK_FALSE(line->wait_beside(socket_pair().value().first.get(), 10ms));
}
