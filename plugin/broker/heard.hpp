// What did a helper say, in a form that may be shown and logged? Everything that the broker hears from a process of a
// user, or of one that read foreign bytes, comes through here.
#pragma once

#include <optional>
#include <vector>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/protocol/messages.hpp"

namespace situla {

struct Heard {
  Message message;
  std::vector<UniqueFd> fds;
};

/// The next message of a helper; nullopt when it has closed its end. Control characters in texts are shown as \xNN,
/// whatever they would do to a terminal or a log; only lines stay lines.
Result<std::optional<Heard>> hear(int socket);

/// The same text where a line must stay one: in logs of the node.
std::string as_one_line(std::string_view text);

/// Of bytes for a terminal what bars need: text, line ends, and sequences that move, erase, colour, or hide the cursor.
std::string drawable(std::string_view bytes);

}  // namespace situla
