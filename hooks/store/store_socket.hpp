// What may a process of a user and the node's store say to each other? A small closed set, versioned.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <variant>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/spec/digest.hpp"

namespace situla::store_socket {

constexpr size_t kMaxBytes = 16384;  ///< of one message
constexpr size_t kMaxText = 4096;    ///< of a text in one

// user -> store: one of these, once

/// An image that the store has, copied into a file. fds: the import request without credentials, a sealed memory file;
/// an empty regular file, open for writing. Answer: Copying and Copied, or NoCopy.
struct CopyWanted {
  /// The registry does not answer: what the name meant last is wanted. Otherwise the request names a manifest.
  bool offline = false;

  static auto fields(auto& wanted) { return std::tie(wanted.offline); }
};
/// `situla images`, `rm` and so on: the command and its words. Answer: Said, as often as there is something to say, and
/// Ended.
struct CommandWanted {
  std::vector<std::string> words;

  static auto fields(auto& wanted) { return std::tie(wanted.words); }
};

// store -> user

/// fds: none, and the store writes into the file that was sent; or a pipe, out of which the image comes.
struct Copying {
  Digest manifest;
  uint64_t bytes = 0;  ///< of the whole image
  uint64_t age = 0;    ///< seconds since the registry let the user have it

  static auto fields(auto& copying) { return std::tie(copying.manifest, copying.bytes, copying.age); }
};
/// All of it is in the file, or in the pipe.
struct Copied {};
/// The store does not have it, or not for this user, or cannot now: which, is not said.
struct NoCopy {};
struct Said {
  std::string text;

  static auto fields(auto& said) { return std::tie(said.text); }
};
/// A text: it failed.
using Ended = SentError;

using Message = std::variant<CopyWanted, CommandWanted, Copying, Copied, NoCopy, Said, Ended>;

std::string encode(const Message& message);
/// ErrorKind::corrupt for anything that encode() did not write, another version included.
Result<Message> decode(std::string_view bytes);

struct Answer {
  Message message;
  std::vector<UniqueFd> fds;
};
/// A connection over which that has been asked. ErrorKind::not_found: nobody listens on this node.
Result<UniqueFd> ask(const Message& question, const std::vector<int>& fds = {});
/// The next answer. ErrorKind::failure when the store has hung up.
Result<Answer> receive(int socket);

}  // namespace situla::store_socket
