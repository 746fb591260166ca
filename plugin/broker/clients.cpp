#include "plugin/broker/clients.hpp"

#include <algorithm>

#include <fcntl.h>

#include "common/sys/file.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/socket.hpp"
#include "plugin/broker/container.hpp"

namespace situla {
namespace {

constexpr std::chrono::seconds kJoinLimit{10};  // from connect() to the token
constexpr std::chrono::milliseconds kNow{0};
constexpr size_t kMaxClients = 4096;
constexpr size_t kMaxUnsaid = 64;

bool waits(const Client& client) {
  return client.waiting && client.socket;
}

/// What may be lost leaves room for the answer, should nobody read for long: a task whose output is stopped does not.
void tell_in_passing(const Client& client, const Message& message) {
  constexpr size_t kMostUnread = 65536;  // of 212,992 bytes, as the kernel has them by default
  if (unread_bytes(client.socket.get()) < kMostUnread) (void)tell(client.socket.get(), message);
}

}  // namespace

void Clients::watch(PollSet& set, const std::function<void(Client&)>& on_ask) {
  // Who waits has said what he had to say; only the end of the connection is news.
  for (Client& client : clients_)
    set.add(
        client.socket.get(), [&] { hear(client, on_ask); }, client.waiting ? short{0} : short{POLLIN});
}

void Clients::watch_listener(PollSet& set) {
  set.add(listener_.get(), [this] { accept(); });
}

Clients::Clock::time_point Clients::next_event() const {
  auto next = Clock::now() + std::chrono::hours(1);
  for (const Client& client : clients_)
    next = std::min(next, client.waiting ? said_alive_ + kAliveEvery : client.connected + kJoinLimit);
  return next;
}

void Clients::say_alive() {
  if (Clock::now() < said_alive_ + kAliveEvery) return;
  said_alive_ = Clock::now();
  for_each_waiting([](const Client& client) { tell_in_passing(client, Alive{}); });
}

void Clients::drop_lost() {
  const auto too_old = Clock::now() - kJoinLimit;
  // What has come while this process was busy is heard next: a mount of the node may have to be waited for.
  const auto says_nothing = [](const Client& client) { return !wait_for_packet(client.socket.get(), kNow); };
  std::erase_if(clients_, [&](const Client& client) {
    return !client.socket || (!client.waiting && client.connected < too_old && says_nothing(client));
  });
}

Client* Clients::first_waiting() {
  const auto first = std::find_if(clients_.begin(), clients_.end(), waits);
  return first == clients_.end() ? nullptr : &*first;
}

void Clients::for_each_waiting(const std::function<void(Client&)>& call) {
  for (Client& client : clients_)
    if (waits(client)) call(client);
}

bool Clients::gave_up() const {
  return asked_ && std::none_of(clients_.begin(), clients_.end(), waits);
}

void Clients::accept() {
  auto socket = accept_from(listener_.get());
  if (!socket) return;
  const auto peer = peer_credentials(socket->get());
  if (!peer || peer->uid != user_ || clients_.size() >= kMaxClients) return;
  auto proc = open_file("/proc/" + std::to_string(peer->pid), O_PATH | O_DIRECTORY);
  // The number may be somebody else's by now.
  if (!proc || !belongs_to(proc->get(), user_)) return;
  Client client;
  client.socket = std::move(*socket);
  if (auto pidfd = open_pidfd(peer->pid); pidfd && belongs_to(proc->get(), user_)) client.pidfd = std::move(*pidfd);
  client.proc = std::move(*proc);
  client.connected = Clock::now();
  clients_.push_back(std::move(client));
}

void Clients::hear(Client& client, const std::function<void(Client&)>& on_ask) {
  const auto bytes = client.waiting ? fail(ErrorKind::cancelled, "it has ended")
                                    : receive_bytes(client.socket.get(), kMaxMessageBytes, Leave::there);
  const auto message = bytes && *bytes ? decode(**bytes) : fail(ErrorKind::cancelled, "closed");
  const JoinRequest* request = message ? std::get_if<JoinRequest>(&*message) : nullptr;
  if (request == nullptr || !is_same(request->token, token_)) {
    client.socket.reset();
    return;
  }
  client.directory = request->directory;
  client.waiting = true;
  asked_ = true;
  for (const Note& note : std::exchange(unsaid_, {})) (void)tell(client.socket.get(), note);
  on_ask(client);
}

void Clients::note(const Note& said) {
  const auto note = limit_.allow(said);
  if (!note) return;
  if (Client* first = first_waiting())
    (void)tell(first->socket.get(), *note);
  else if (unsaid_.size() < kMaxUnsaid)
    unsaid_.push_back(*note);
}

void Clients::draw(const Draw& drawing) {
  if (const Client* first = first_waiting()) tell_in_passing(*first, drawing);
}

void Clients::news(const Message& news) {
  if (const Client* first = first_waiting()) tell_in_passing(*first, news);
}

UniqueFd Clients::answer(Client& client, const Message& message, const std::vector<int>& fds) {
  constexpr int kMaxLeft = 16;  // one, of a task of ours
  // What lies in the socket still, unread, would be taken for a connection that broke.
  for (int left = 0; left < kMaxLeft; ++left)
    if (const auto bytes = receive_bytes(client.socket.get(), kMaxMessageBytes); !bytes || !*bytes) break;
  UniqueFd socket = std::move(client.socket);
  // It would wait for ever for what did not go out; the end of the connection it understands.
  if (!tell(socket.get(), message, fds)) socket.reset();
  return socket;
}

void Clients::close() {
  clients_.clear();
  listener_.reset();
}

}  // namespace situla
