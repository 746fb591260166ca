#include "common/sys/socket.hpp"

#include <thread>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

int open_descriptors() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) count += entry.path().empty() ? 0 : 1;
  return count;
}

}  // namespace

TEST_CASE("A packet carries bytes, NULs included, and descriptors") {
  const test::TempDir dir;
  auto pair = socket_pair();
  REQUIRE(pair);
  auto file = open_file(dir.write("a", "content of a"), O_RDONLY);
  REQUIRE(file);
  const std::string bytes("x\0y", 3);
  REQUIRE(send_packet(pair->first.get(), bytes, {file->get(), file->get()}));
  auto packet = receive_packet(pair->second.get(), 100);
  REQUIRE(packet);
  REQUIRE(packet->has_value());
  CHECK((*packet)->bytes == bytes);
  REQUIRE((*packet)->fds.size() == 2);
  CHECK((fcntl((*packet)->fds[0].get(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(*read_all((*packet)->fds[1].get(), 100) == "content of a");
}

TEST_CASE("The end of the stream is no packet, and an empty packet cannot be sent") {
  auto pair = socket_pair();
  REQUIRE(pair);
  const auto empty = send_packet(pair->first.get(), "");
  REQUIRE_FALSE(empty);
  CHECK(empty.error().kind() == ErrorKind::usage);
  pair->first.reset();
  auto packet = receive_packet(pair->second.get(), 100);
  REQUIRE(packet);
  CHECK_FALSE(packet->has_value());
}

TEST_CASE("A truncated packet is corrupt and leaks no descriptor") {
  auto pair = socket_pair();
  REQUIRE(pair);
  const int before = open_descriptors();
  REQUIRE(send_packet(pair->first.get(), "0123456789", {0}));
  const auto packet = receive_packet(pair->second.get(), 5);
  REQUIRE_FALSE(packet);
  CHECK(packet.error().kind() == ErrorKind::corrupt);
  CHECK(open_descriptors() == before);
}

TEST_CASE("More descriptors than agreed are refused by the sender and closed by the receiver") {
  auto pair = socket_pair();
  REQUIRE(pair);
  CHECK_FALSE(send_packet(pair->first.get(), "x", std::vector<int>(17, 0)));
  const int before = open_descriptors();
  // A hostile peer does not use our send_packet.
  alignas(cmsghdr) char control[CMSG_SPACE(40 * sizeof(int))] = {};
  char byte = 'x';
  iovec piece{&byte, 1};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(40 * sizeof(int));
  REQUIRE(sendmsg(pair->first.get(), &message, 0) == 1);
  const auto packet = receive_packet(pair->second.get(), 10);
  REQUIRE_FALSE(packet);
  CHECK(packet.error().kind() == ErrorKind::corrupt);
  CHECK(open_descriptors() == before);
}

TEST_CASE("A closed peer is an error, not a signal") {
  auto pair = socket_pair();
  REQUIRE(pair);
  pair->second.reset();
  const auto sent = send_packet(pair->first.get(), "x");
  REQUIRE_FALSE(sent);
  CHECK(sent.error().errnum() == EPIPE);
}

TEST_CASE("A listener has an abstract name, knows its peer and does not block") {
  auto listener = listen_abstract();
  REQUIRE(listener);
  REQUIRE_FALSE(listener->address.empty());
  CHECK(listener->address[0] == '\0');
  auto client = connect_to(listener->address);
  REQUIRE(client);
  auto server = accept_from(listener->fd.get());
  REQUIRE(server);
  const auto peer = peer_credentials(server->get());
  REQUIRE(peer);
  CHECK(peer->pid == getpid());
  CHECK(peer->uid == geteuid());
  CHECK(peer->gid == getegid());
  const auto nothing = receive_packet(server->get(), 10);
  REQUIRE_FALSE(nothing);
  CHECK(nothing.error().errnum() == EAGAIN);
  listener->fd.reset();
  const auto gone = connect_to(listener->address);
  REQUIRE_FALSE(gone);
  CHECK(gone.error().message().find("connect to unix socket \\x00") != std::string::npos);
  CHECK_FALSE(connect_to(std::string(200, 'x')));
}

TEST_CASE("Sealed memory is read back, and cannot be changed by who made it") {
  auto fd = sealed_memory("test", std::string("payload\0!", 9));
  REQUIRE(fd);
  CHECK(pwrite(fd->get(), "X", 1, 0) < 0);
  CHECK(ftruncate(fd->get(), 0) < 0);
  CHECK(*read_sealed_memory(fd->get(), 9) == std::string("payload\0!", 9));
  CHECK(read_sealed_memory(fd->get(), 8).error().kind() == ErrorKind::corrupt);
}

TEST_CASE("Anything that could change while it is read is refused") {
  auto unsealed = memory_file("test");
  REQUIRE(unsealed);
  REQUIRE(write_all(unsealed->get(), "text"));
  CHECK(read_sealed_memory(unsealed->get(), 100).error().kind() == ErrorKind::corrupt);
  const test::TempDir dir;
  auto file = open_file(dir.write("a", "text"), O_RDONLY);
  CHECK(read_sealed_memory(file->get(), 100).error().kind() == ErrorKind::corrupt);
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const UniqueFd reader(ends[0]);
  const UniqueFd writer(ends[1]);
  CHECK(read_sealed_memory(reader.get(), 100).error().kind() == ErrorKind::corrupt);
  const int only_shrink = memfd_create("test", MFD_ALLOW_SEALING);
  const UniqueFd owner(only_shrink);
  REQUIRE(fcntl(only_shrink, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
  CHECK(read_sealed_memory(only_shrink, 100).error().kind() == ErrorKind::corrupt);
}

TEST_CASE("bytes are received without the descriptors that came with them, and may be left for somebody else") {
  auto pair = socket_pair();
  REQUIRE(pair);
  const auto file = sealed_memory("file", "content");
  REQUIRE(file);
  const auto nothing = receive_bytes(pair->second.get(), 10);
  REQUIRE_FALSE(nothing);
  CHECK(nothing.error().errnum() == EAGAIN);
  REQUIRE(send_packet(pair->first.get(), "one", {file->get()}));
  REQUIRE(send_packet(pair->first.get(), "two", {file->get()}));
  CHECK(**receive_bytes(pair->second.get(), 10) == "one");
  CHECK(**receive_bytes(pair->second.get(), 10, Leave::there) == "two");
  const auto packet = receive_packet(pair->second.get(), 10);
  REQUIRE((packet && *packet && (*packet)->fds.size() == 1));
  CHECK(*read_sealed_memory((*packet)->fds[0].get(), 100) == "content");
  REQUIRE(send_packet(pair->first.get(), "larger than that"));
  CHECK(receive_bytes(pair->second.get(), 10).error().kind() == ErrorKind::corrupt);
  pair->first.reset();
  CHECK_FALSE(*receive_bytes(pair->second.get(), 10));
}

TEST_CASE("a parcel holds what was put in last") {
  auto parcel = make_parcel();
  REQUIRE(parcel);
  CHECK(take_from_parcel(parcel->out.get()).error().kind() == ErrorKind::not_found);
  const auto old = sealed_memory("old", "old");
  const auto last = sealed_memory("last", "last");
  REQUIRE(put_into_parcel(parcel->in.get(), {old->get()}));
  CHECK(take_from_parcel(parcel->out.get(), Leave::there)->size() == 1);
  REQUIRE(put_into_parcel(parcel->in.get(), {last->get(), old->get()}));
  parcel->in.reset();
  const auto files = take_from_parcel(parcel->out.get());
  REQUIRE((files && files->size() == 2));
  CHECK(*read_sealed_memory((*files)[0].get(), 100) == "last");
}

TEST_CASE("silence is an error after a while, the end of the stream is none") {
  auto pair = socket_pair();
  REQUIRE(pair);
  CHECK_FALSE(wait_for_packet(pair->second.get(), std::chrono::milliseconds(10)));
  REQUIRE(send_packet(pair->first.get(), "x"));
  CHECK(wait_for_packet(pair->second.get(), std::chrono::milliseconds(10)));
  (void)receive_bytes(pair->second.get(), 10);
  pair->first.reset();
  CHECK(wait_for_packet(pair->second.get(), std::chrono::milliseconds(10)));
}

TEST_CASE("a memory file is written anew until it is sealed") {
  const auto file = memory_file("file");
  REQUIRE(file);
  REQUIRE(write_memory(file->get(), "a long text"));
  REQUIRE(write_memory(file->get(), "short"));
  CHECK_FALSE(read_sealed_memory(file->get(), 100));
  REQUIRE(seal_memory(file->get()));
  CHECK(*read_sealed_memory(file->get(), 100) == "short");
  CHECK_FALSE(write_memory(file->get(), "other"));
}
