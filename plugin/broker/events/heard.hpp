// What did a helper say, in a form that may be shown and logged? Everything that the broker hears from a process of a
// user, or of one that read foreign bytes, comes through here.
#pragma once

#include <optional>
#include <vector>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/protocol/messages.hpp"

namespace situla {

/// The next message of a helper; nullopt when it has closed its end; an error where that cannot be known. Control
/// characters in texts are shown as \xNN, whatever they would do to a terminal or a log; only lines stay lines.
/// Descriptors that come with it never become ours: receive_bytes(). Does not wait.
Result<std::optional<Message>> hear(int socket);

struct Heard {
  Message message;
  std::vector<UniqueFd> fds;
};
/// The same, with descriptors, of the store program: the only helper that is no process of a user's and reads nothing
/// foreign.
Result<std::optional<Heard>> hear_store(int socket);

/// What a Failure says, as an error.
Error error_of(const Failure& failure);

/// What a task or slurmstepd is told they write into the node's log as well, and a user can speak for his helpers: of
/// one step there is an end to it.
class NoteLimit {
 public:
  /// The note; once, a last one in its place; then nothing.
  std::optional<Note> allow(const Note& note);

 private:
  size_t bytes_ = 0;
};

/// Without waiting for whoever does not read.
Result<void> tell(int socket, const Message& message, const std::vector<int>& fds = {});

/// The same text where a line must stay one: in logs of the node.
std::string as_one_line(std::string_view text);

/// Of bytes for a terminal what bars need: text, line ends, and sequences that move, erase, colour, or hide the cursor.
std::string drawable(std::string_view bytes);

}  // namespace situla
