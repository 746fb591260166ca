// Which tasks have connected, which of them wait for the container, and what are they told meanwhile?
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "common/base/unique_fd.hpp"
#include "common/protocol/messages.hpp"
#include "plugin/broker/events/heard.hpp"
#include "plugin/broker/events/poll_set.hpp"

namespace situla {

/// One connection. Its packet stays in the socket, with the task's descriptors, which never become ours: a builder gets
/// the socket.
struct Client {
  UniqueFd socket;  ///< none: it has its answer, or is gone
  UniqueFd proc;    ///< /proc/<pid>
  UniqueFd pidfd;   ///< none on kernels without (< 5.3)
  std::string directory;
  std::chrono::steady_clock::time_point connected;
  bool waiting = false;  ///< it has shown the token, and has no answer yet
};

class Clients {
 public:
  using Clock = std::chrono::steady_clock;

  Clients(UniqueFd listener, uid_t user, const StepToken& token)
      : listener_(std::move(listener)), user_(user), token_(token) {}

  /// `on_ask` is called for each that shows the token, when it has read what was said before.
  void watch(PollSet& set, const std::function<void(Client&)>& on_ask);
  /// Accepts one, if it is a process of the job user.
  void watch_listener(PollSet& set);
  /// When say_alive() or drop_lost() is to be called next, if nothing happens.
  [[nodiscard]] Clock::time_point next_event() const;
  /// A task cannot tell an import of hours from a broker that hangs.
  void say_alive();
  /// Forgets those that have gone, have their answer, or say nothing.
  void drop_lost();

  /// nullptr: none waits.
  Client* first_waiting();
  void for_each_waiting(const std::function<void(Client&)>& call);
  /// Tasks have asked, and none of them waits any more.
  [[nodiscard]] bool gave_up() const;

  /// One task of the node tells the user; before any has asked, the first to come.
  void note(const Note& note);
  /// Only steps of one task have a terminal.
  void draw(const Draw& drawing);
  /// ImportWaits and ImportProgress: one task of the node tells srun (step_monitor.hpp).
  void news(const Message& news);
  /// The last that it hears, over the connection that the caller may keep then.
  static UniqueFd answer(Client& client, const Message& message, const std::vector<int>& fds = {});
  /// No task can get in any more; who waits is told by the closing of its connection.
  void close();

  NoteLimit& limit() { return limit_; }

 private:
  void accept();
  void hear(Client& client, const std::function<void(Client&)>& on_ask);

  UniqueFd listener_;
  uid_t user_;
  StepToken token_;
  std::vector<Client> clients_;
  std::vector<Note> unsaid_;  ///< for the first task that asks
  NoteLimit limit_;
  bool asked_ = false;
  Clock::time_point said_alive_{};
};

}  // namespace situla
