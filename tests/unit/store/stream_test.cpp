// Does a file get from one node to all others, whoever of them comes late, breaks off or does without, and to nobody
// else?
#include <array>
#include <csignal>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/socket.hpp"
#include "common/sys/tcp.hpp"
#include "hooks/courier/transfer.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;
using namespace situla::stream;

namespace {

std::string some_bytes(size_t size) {
  std::string bytes(size, '\0');
  uint32_t state = 1;
  for (char& byte : bytes) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<char>(state >> 24U);
  }
  return bytes;
}

/// A node with a file, and what it offers; it sends in a thread of its own.
class Streaming {
 public:
  explicit Streaming(uint32_t nodes, size_t size = 5'000'000,
                     std::chrono::milliseconds silent = std::chrono::seconds(60))
      : content_(some_bytes(size)) {
    (void)std::signal(SIGPIPE, SIG_IGN);  // as the program
    file_ = open_file(directory_.write("image", content_), O_RDONLY).value();
    auto listening = listen_for_others(content_.size());
    REQUIRE(listening);
    offer_ = listening->offer;
    auto pipe = make_pipe();
    REQUIRE(pipe);
    delivered_ = std::move(pipe->second);
    thread_ = std::thread(
        [this, nodes, silent, listener = std::move(listening->listener), end = std::move(pipe->first)]() mutable {
          ended_ = send_file({.listener = std::move(listener),
                              .offer = offer_,
                              .file = file_.get(),
                              .nodes = nodes,
                              .delivered = end.get(),
                              .late = std::chrono::milliseconds(1000),
                              .silent = silent});
        });
  }
  Streaming(const Streaming&) = delete;
  Streaming& operator=(const Streaming&) = delete;
  ~Streaming() {
    if (thread_.joinable()) thread_.join();
  }
  [[nodiscard]] const Offer& offer() const { return offer_; }
  /// Whether this is the file. (Catch takes long to look at megabytes.)
  [[nodiscard]] bool is_at(const std::string& path) const {
    const auto bytes = read_file(path, size_t{1} << 30U);
    return bytes && *bytes == content_;
  }
  void all_have_the_offer() { delivered_.reset(); }
  Result<void> end() {
    thread_.join();
    return ended_;
  }

 private:
  test::TempDir directory_;
  std::string content_;
  Offer offer_;
  UniqueFd file_, delivered_;
  Result<void> ended_;
  std::thread thread_;
};

/// Another node: the program that a courier starts, with its descriptors.
class Fetching {
 public:
  Fetching(const Offer& offer, uint32_t number, const std::string& path) {
    const auto words = sealed_memory("offer", encode(offer));
    const auto file = open_file(path, O_RDWR | O_CREAT, 0600);
    auto said = open_file(path + ".said", O_RDWR | O_CREAT, 0600);
    REQUIRE((words && file && said));
    SpawnOptions options;
    options.program = SITULA_COURIER;
    options.arguments = {"situla-courier", "fetch", std::to_string(number)};
    options.fds = {{words->get(), 3}, {file->get(), 4}, {said->get(), STDERR_FILENO}};
    auto program = spawn(options);
    REQUIRE(program);
    program_ = std::move(*program);
    said_ = path + ".said";
  }
  void signal(int number) const { REQUIRE(program_.signal(number)); }
  /// "exit code: what it said".
  std::string end() {
    const auto status = program_.wait();
    return status->text() + ": " + test::slurp(said_);
  }
  [[nodiscard]] bool is_whole() const { return test::slurp(said_) == "whole\n"; }

 private:
  Child program_;
  std::string said_;
};
const std::string kGotIt = "exited with return code 0: whole\n";

/// A stranger's connection.
UniqueFd connect_as_stranger(const Offer& offer) {
  auto socket = begin_to_connect(offer.addresses.front(), offer.port);
  REQUIRE(socket);
  pollfd wait{socket->get(), POLLOUT, 0};
  REQUIRE(poll(&wait, 1, 10000) == 1);
  REQUIRE(connected(socket->get()));
  return std::move(*socket);
}
/// All that it hears until the other end closes, or has nothing to say for a moment.
std::string hear_all(int socket, int ms = 300) {
  std::string heard;
  std::array<char, 4096> piece{};
  for (pollfd wait{socket, POLLIN, 0}; poll(&wait, 1, ms) == 1;) {
    const auto got = receive_some(socket, piece.data(), piece.size());
    if (!got || !*got || **got == 0) break;
    heard.append(piece.data(), **got);
  }
  return heard;
}

}  // namespace

TEST_CASE("all nodes get the file, from each other") {
  constexpr uint32_t kOthers = 7;
  Streaming node(kOthers + 1);
  const test::TempDir directory;
  std::vector<Fetching> others;
  for (uint32_t i = 1; i <= kOthers; ++i) others.emplace_back(node.offer(), i, directory / std::to_string(i));
  CHECK(node.end());
  for (uint32_t i = 1; i <= kOthers; ++i) {
    CHECK(others[i - 1].end() == kGotIt);
    CHECK(node.is_at(directory / std::to_string(i)));
  }
}

TEST_CASE("an empty file, and one of a byte") {
  for (const size_t size : {size_t{0}, size_t{1}}) {
    Streaming node(2, size);
    const test::TempDir directory;
    Fetching other(node.offer(), 1, directory / "1");
    CHECK(node.end());
    CHECK(other.end() == kGotIt);
    CHECK(node.is_at(directory / "1"));
  }
}

TEST_CASE("a node that does not get on is not waited for") {
  Streaming node(2, size_t{100} << 20U, std::chrono::milliseconds(2000));
  const test::TempDir directory;
  Fetching other(node.offer(), 1, directory / "1");
  struct stat status {};
  while (stat((directory / "1").c_str(), &status) != 0 || status.st_size == 0) usleep(100);
  other.signal(SIGSTOP);
  const bool was_whole = other.is_whole();
  const auto ended = node.end();
  if (!was_whole) {
    REQUIRE_FALSE(ended);
    CHECK(ended.error().message() == "node 1 does not get on");
  }
}

TEST_CASE("a node that dies on the way takes nobody with it") {
  constexpr uint32_t kOthers = 6;
  Streaming node(kOthers + 1, size_t{100} << 20U);
  const test::TempDir directory;
  std::vector<Fetching> others;
  for (uint32_t i = 1; i <= kOthers; ++i) others.emplace_back(node.offer(), i, directory / std::to_string(i));
  // Whoever came first feeds two more. It has begun.
  const auto size_of = [&](uint32_t i) {
    struct stat status {};
    return stat((directory / std::to_string(i)).c_str(), &status) == 0 ? status.st_size : 0;
  };
  while (size_of(1) == 0) usleep(100);
  others[0].signal(SIGKILL);
  // It may have had all of it.
  const bool was_whole = others[0].is_whole();
  const auto ended = node.end();
  if (!was_whole) {
    REQUIRE_FALSE(ended);
    CHECK(ended.error().message() == "node 1 has broken off");
  }
  for (uint32_t i = 2; i <= kOthers; ++i) {
    CHECK(others[i - 1].end() == kGotIt);
    CHECK(node.is_at(directory / std::to_string(i)));
  }
}

TEST_CASE("who does without says so, and who is not heard of is not waited for for ever") {
  Streaming node(4);
  const test::TempDir directory;
  Fetching other(node.offer(), 1, directory / "1");
  CHECK(decline_file(node.offer(), 2));
  node.all_have_the_offer();
  CHECK(node.end());
  CHECK(other.end() == kGotIt);
  CHECK(node.is_at(directory / "1"));
}

TEST_CASE("a node without room says why, and the sender does not wait for it") {
  Streaming node(2);
  const UniqueFd full = open_file("/dev/full", O_WRONLY).value();
  const auto fetched = fetch_file(node.offer(), 1, full.get(), [] { FAIL("it is not there"); });
  REQUIRE_FALSE(fetched);
  CHECK(fetched.error().errnum() == ENOSPC);
  CHECK(node.end());
}

TEST_CASE("who does not know the key gets nothing, and cannot pretend to be the sender") {
  Streaming node(2);
  Offer wrong = node.offer();
  wrong.key[0] ^= 1U;
  const test::TempDir directory;
  const UniqueFd file = open_file(directory / "stranger", O_RDWR | O_CREAT, 0600).value();
  const auto fetched = fetch_file(wrong, 1, file.get(), [] { FAIL("it is not there"); });
  REQUIRE_FALSE(fetched);
  CHECK(fetched.error().kind() == ErrorKind::unreachable);
  CHECK(test::slurp(directory / "stranger").empty());
  // Words that are none, too long or out of turn: the challenge is all that is heard.
  for (const std::string& said :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(4, '\377'), std::string(600, '\0')}) {
    const UniqueFd stranger = connect_as_stranger(node.offer());
    (void)send_some(stranger.get(), said);
    CHECK(hear_all(stranger.get()).size() < 64);
  }
  // Many who say nothing: the node that is meant comes in all the same.
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(connect_as_stranger(node.offer()));
  Fetching other(node.offer(), 1, directory / "1");
  CHECK(node.end());
  CHECK(other.end() == kGotIt);
  CHECK(node.is_at(directory / "1"));
}

TEST_CASE("nobody there") {
  Offer offer;
  {
    const auto listener = listen_tcp();
    REQUIRE(listener);
    offer = {own_addresses(), listener->port, {}, 1};
  }
  offer.addresses.insert(offer.addresses.begin(), "no address");
  const test::TempDir directory;
  const UniqueFd file = open_file(directory / "1", O_RDWR | O_CREAT, 0600).value();
  const auto fetched = fetch_file(offer, 1, file.get(), [] { FAIL("it is not there"); });
  REQUIRE_FALSE(fetched);
  CHECK(fetched.error().kind() == ErrorKind::unreachable);
  CHECK_FALSE(decode_offer("x"));
  CHECK(decode_offer(encode(offer))->addresses == offer.addresses);
}
