// Which tasks does a broker hear, and for how long does it wait for their first word?
#include "plugin/broker/clients.hpp"

#include <chrono>
#include <thread>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/protocol/messages.hpp"
#include "common/sys/socket.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

UniqueFd seqpacket() {
  UniqueFd made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  REQUIRE(made);
  return made;
}

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(static_cast<char*>(address.sun_path), sizeof address.sun_path - 1);
  return address;
}

}  // namespace

TEST_CASE("a broker that was busy hears who has asked meanwhile, and does not wait for who says nothing") {
  const test::TempDir directory;
  const sockaddr_un address = address_of(directory / "socket");
  const auto* where = reinterpret_cast<const sockaddr*>(&address);
  UniqueFd listener = seqpacket();
  REQUIRE(bind(listener.get(), where, sizeof address) == 0);
  REQUIRE(listen(listener.get(), 8) == 0);
  const StepToken token{1, 2, 3};
  Clients clients(std::move(listener), geteuid(), token);

  int asked = 0;
  const std::function<void(Client&)> on_ask = [&asked](Client&) { ++asked; };
  const auto turn = [&] {
    PollSet set;
    clients.watch(set, on_ask);
    clients.watch_listener(set);
    REQUIRE(set.wait(Clients::Clock::now() + std::chrono::milliseconds(100), false));
    clients.drop_lost();
  };
  const UniqueFd asks = seqpacket(), silent = seqpacket();
  for (const UniqueFd* task : {&asks, &silent}) {
    REQUIRE(connect(task->get(), where, sizeof address) == 0);
    turn();
  }
  REQUIRE(send_packet(asks.get(), encode(JoinRequest{token, "/"})));
  std::this_thread::sleep_for(std::chrono::milliseconds(10500));
  clients.drop_lost();
  turn();
  CHECK(asked == 1);
  CHECK(clients.first_waiting() != nullptr);
  char byte = 0;
  CHECK(recv(silent.get(), &byte, 1, MSG_DONTWAIT) == 0);
  CHECK(recv(asks.get(), &byte, 1, MSG_DONTWAIT) < 0);
}
