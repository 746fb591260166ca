#include "common/sys/tcp.hpp"

#include <algorithm>
#include <cerrno>

#include <poll.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/socket.hpp"

using namespace situla;

namespace {

bool is_ready(int socket, short events) {
  pollfd entry{socket, events, 0};
  return poll(&entry, 1, 5000) == 1;
}

struct Connection {
  UniqueFd one, other;
};

Connection connection() {
  auto listener = listen_tcp();
  REQUIRE(listener);
  Connection made;
  auto client = begin_to_connect("127.0.0.1", listener->port);
  REQUIRE(client);
  made.one = std::move(*client);
  REQUIRE(is_ready(listener->fd.get(), POLLIN));
  auto server = accept_from(listener->fd.get());
  REQUIRE(server);
  made.other = std::move(*server);
  return made;
}

}  // namespace

TEST_CASE("a port of a range is one that nobody has") {
  const auto any = listen_tcp();
  REQUIRE(any);
  const auto port = static_cast<uint16_t>(any->port);
  const auto taken = listen_tcp(PortRange{port, port});
  REQUIRE_FALSE(taken);
  CHECK(taken.error().errnum() == EADDRINUSE);
  const uint16_t first = port > 60000 ? static_cast<uint16_t>(port - 50) : port;
  const PortRange range{first, static_cast<uint16_t>(first + 50)};
  const auto next = listen_tcp(range);
  REQUIRE(next);
  CHECK(next->port != port);
  CHECK(next->port >= range.first);
  CHECK(next->port <= range.last);
  CHECK_FALSE(listen_tcp(PortRange{0, 10}));
  CHECK_FALSE(listen_tcp(PortRange{10, 9}));
}

TEST_CASE("frames come as they were said, however they are cut on their way") {
  auto [one, other] = connection();
  TcpFrames from(std::move(one), 100);
  TcpFrames to(std::move(other), 100);
  const auto heard = to.hear();
  REQUIRE(heard);
  CHECK_FALSE(*heard);
  CHECK(from.events() == POLLIN);
  from.say("first");
  from.say("");
  from.say(std::string(100, 'x'));
  CHECK(from.events() == (POLLIN | POLLOUT));
  REQUIRE(from.flush());
  CHECK(from.is_flushed());
  for (const std::string& expected : {std::string("first"), std::string(), std::string(100, 'x')}) {
    REQUIRE(is_ready(to.fd(), POLLIN));
    const auto frame = to.hear();
    REQUIRE((frame && *frame));
    CHECK(**frame == expected);
  }
  // Half of one, then the other half.
  REQUIRE(send_some(from.fd(), std::string_view("\3\0\0\0a", 5)));
  REQUIRE(is_ready(to.fd(), POLLIN));
  const auto half = to.hear();
  REQUIRE(half);
  CHECK_FALSE(*half);
  REQUIRE(send_some(from.fd(), "bc"));
  REQUIRE(is_ready(to.fd(), POLLIN));
  CHECK(**to.hear() == "abc");
}

TEST_CASE("a frame that is too long, and the end of a connection") {
  auto [one, other] = connection();
  TcpFrames from(std::move(one), 100);
  TcpFrames to(std::move(other), 100);
  from.say(std::string(101, 'x'));
  REQUIRE(from.flush());
  REQUIRE(is_ready(to.fd(), POLLIN));
  const auto heard = to.hear();
  REQUIRE_FALSE(heard);
  CHECK(heard.error().kind() == ErrorKind::corrupt);
  auto [here, there] = connection();
  TcpFrames frames(std::move(here), 100);
  there.reset();
  REQUIRE(is_ready(frames.fd(), POLLIN));
  const auto end = frames.hear();
  REQUIRE_FALSE(end);
  CHECK(end.error().errnum() == EPIPE);
}
