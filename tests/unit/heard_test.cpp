// What may a helper's words do to a log or a terminal? Nothing.
#include "plugin/broker/events/heard.hpp"

#include <csignal>

#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/process/process.hpp"
#include "common/sys/socket.hpp"
#include "plugin/broker/children.hpp"

using namespace situla;

namespace {

Message heard(const Message& said) {
  auto sockets = socket_pair();
  REQUIRE(sockets);
  REQUIRE(send_packet(sockets->first.get(), encode(said)));
  auto message = hear(sockets->second.get());
  REQUIRE(message);
  REQUIRE(*message);
  return std::move(**message);
}

}  // namespace

TEST_CASE("texts of helpers are printable, line by line") {
  const auto note = std::get<Note>(heard(Note{LogLevel::info, "one\n\x1b]0;title\x07\rtwo"}));
  CHECK(note.text == "one\n\\x1b]0;title\\x07\\x0dtwo");
  const auto failure = std::get<Failure>(heard(Failure{ErrorKind::failure, "\x1b[2J", "a\x9b"}));
  CHECK(failure.text == "\\x1b[2J");
  CHECK(failure.hint == "a\\x9b");
  CHECK(std::get<RunningWanted>(heard(RunningWanted{.ignored = "\x7f", .identity = {}})).ignored == "\\x7f");
}

TEST_CASE("a log gets one line, whatever the text has") {
  CHECK(as_one_line("lost\n[2026-01-01] error: forged\n") == "lost; [2026-01-01] error: forged");
  CHECK(as_one_line("").empty());
}

TEST_CASE("a helper that was killed is said to be, under the code of helpers") {
  auto child = fork_child();
  REQUIRE(child);
  if (!*child) {
    (void)raise(SIGKILL);
    _exit(0);
  }
  const Error error = ended_early("the importer", *child);
  CHECK(error.message() == "the importer was killed by SIGKILL");
  CHECK(error.code() == ErrorCode::helper);
}

TEST_CASE("bars move, erase and colour; nothing else reaches the terminal as it is") {
  const std::string bar = "\x1b[3A\r\x1b[J\x1b[1;32mlayer\x1b[0m 40 %\x1b[K\n\x1b[?25l";
  CHECK(drawable(bar) == bar);
  CHECK(drawable("\x1b]52;c;aGk=\x07") == "]52;c;aGk=\\x07");
  CHECK(drawable("\x1b[21t\x1b[6n") == "[21t[6n");
  CHECK(drawable("\x1bP1\x1b") == "P1");
  CHECK(std::get<Draw>(heard(Draw{"\x1b]2;x\x07"})).bytes == "]2;x\\x07");
}
