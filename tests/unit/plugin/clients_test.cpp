// Which tasks does a broker hear, and for how long does it wait for their first word?
#include "plugin/broker/clients.hpp"

#include <chrono>
#include <thread>

#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/protocol/messages.hpp"
#include "common/sys/socket.hpp"

using namespace situla;

TEST_CASE("a broker that was busy hears who has asked meanwhile, and does not wait for who says nothing") {
  auto listener = listen_abstract();
  REQUIRE(listener);
  const StepToken token{1, 2, 3};
  Clients clients(std::move(listener->fd), geteuid(), token);

  int asked = 0;
  const std::function<void(Client&)> on_ask = [&asked](Client&) { ++asked; };
  const auto turn = [&] {
    PollSet set;
    clients.watch(set, on_ask);
    clients.watch_listener(set);
    REQUIRE(set.wait(Clients::Clock::now() + std::chrono::milliseconds(100), false));
    clients.drop_lost();
  };
  const auto asks = connect_to(listener->address);
  turn();
  const auto silent = connect_to(listener->address);
  turn();
  REQUIRE((asks && silent));
  REQUIRE(send_packet(asks->get(), encode(JoinRequest{token, "/"})));
  std::this_thread::sleep_for(std::chrono::milliseconds(10500));
  clients.drop_lost();
  turn();
  CHECK(asked == 1);
  CHECK(clients.first_waiting() != nullptr);
  char byte = 0;
  CHECK(recv(silent->get(), &byte, 1, MSG_DONTWAIT) == 0);
  CHECK(recv(asks->get(), &byte, 1, MSG_DONTWAIT) < 0);
}
