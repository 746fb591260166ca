// What do a Slurm command in a container and the step's proxy say to each other?
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <variant>
#include <vector>

#include "common/base/result.hpp"
#include "common/protocol/messages.hpp"

namespace situla::slurm_line {

/// Upper bound of one message in bytes. A Request, which may be larger, travels as a sealed memory file beside Asked.
constexpr size_t kMaxMessageBytes = 32768;
constexpr size_t kMaxRequestBytes = size_t{16} << 20U;

/// What was typed, and where. The proxy believes nothing of it that the user could not do outside.
struct Request {
  std::string command;                   ///< "srun"
  std::vector<std::string> arguments;    ///< without the command's name
  std::vector<std::string> environment;  ///< "NAME=VALUE"
  std::string directory;                 ///< inside the container; absolute
  std::vector<uint64_t> limits;          ///< soft limits of getrlimit(2), by number
  uint32_t umask = 0;

  static auto fields(auto& request) {
    return std::tie(request.command, request.arguments, request.environment, request.directory, request.limits,
                    request.umask);
  }
};
std::string encode_request(const Request& request);
Result<Request> decode_request(std::string_view bytes);

/// What salloc was to run.
struct Inside {
  std::vector<std::string> command;      ///< empty: a shell
  std::string directory;                 ///< as in the container; empty: where the client is
  std::vector<std::string> environment;  ///< "NAME=VALUE", in place of the client's own of that name

  static auto fields(auto& inside) { return std::tie(inside.command, inside.directory, inside.environment); }
};
std::string encode_inside(const Inside& inside);
Result<Inside> decode_inside(std::string_view bytes);

// proxy -> client

/// Of the step's token (SlurmDoor): what the proxy shows, and what the client shows then. Who has only
/// found the address hears one half, and runs nothing.
using HalfToken = std::array<uint8_t, std::tuple_size_v<StepToken> / 2>;
HalfToken first_half(const StepToken& token);
HalfToken second_half(const StepToken& token);

/// First of all: whoever listens knows the step.
struct Hello {
  HalfToken token{};

  static auto fields(auto& hello) { return std::tie(hello.token); }
};
/// The container's files are opened by who is in the container, with his rights. Answer: Opened.
struct Open {
  std::string path;        ///< relative ones begin at the client's working directory
  bool directory = false;  ///< only to know which it is (O_PATH); else for reading

  static auto fields(auto& open) { return std::tie(open.path, open.directory); }
};
/// Of salloc: what it was given as its command runs in the container. fds: an Inside, a sealed memory file. Answer:
/// Ended.
struct RunInside {};

// client -> proxy

/// fds: the Request; standard input, output and error; its /proc/self/mountinfo, open for reading.
struct Asked {
  HalfToken token{};

  static auto fields(auto& asked) { return std::tie(asked.token); }
};
/// fds: the file, unless there is an error.
struct Opened {
  uint32_t errnum = 0;

  static auto fields(auto& opened) { return std::tie(opened.errnum); }
};

// both

/// For the command, or for what salloc runs inside.
struct Signal {
  uint32_t number = 0;

  static auto fields(auto& signal) { return std::tie(signal.number); }
};
struct Ended {
  uint32_t code = 0, signal = 0;  ///< as of ExitStatus

  static auto fields(auto& ended) { return std::tie(ended.code, ended.signal); }
};

using Message = std::variant<Hello, Open, RunInside, Asked, Opened, Signal, Ended>;

std::string encode(const Message& message);
/// ErrorKind::corrupt for anything that encode() did not write.
Result<Message> decode(std::string_view bytes);

}  // namespace situla::slurm_line
