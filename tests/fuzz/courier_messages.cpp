#include <array>
#include <cstdlib>
#include <string>

#include <sys/socket.h>
#include <unistd.h>

#include "common/base/base64.hpp"
#include "common/base/codec.hpp"
#include "hooks/courier/claim.hpp"
#include "hooks/courier/messages.hpp"
#include "hooks/courier/stream.hpp"
#include "hooks/courier/voucher.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using namespace situla;

constexpr size_t kVersionBytes = sizeof(uint32_t);

/// Strict: of each there is one form.
template <typename Decode>
void check(const std::string& some_packet, std::string_view bytes, const Decode& decode) {
  const std::string packet = some_packet.substr(0, kVersionBytes) + std::string(bytes);
  const auto item = decode(packet);
  if (item && encode(*item) != packet) std::abort();
}

struct Ends {
  UniqueFd one, other;
  Ends() {
    std::array<int, 2> fds{};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data()) != 0) std::abort();
    one.reset(fds[0]);
    other.reset(fds[1]);
  }
};

std::string drain(int fd) {
  std::string bytes(4096, '\0');
  const ssize_t size = read(fd, bytes.data(), bytes.size());
  bytes.resize(size > 0 ? static_cast<size_t>(size) : 0);
  return bytes;
}

/// What any node that can connect might send, in front of its length.
void check_words(std::string_view bytes) {
  static const std::string version = [] {
    const Ends ends;
    stream::Channel channel(UniqueFd(dup(ends.one.get())));
    channel.say(stream::Lost());
    if (!channel.flush()) std::abort();
    return drain(ends.other.get()).substr(kVersionBytes, kVersionBytes);
  }();
  Encoder length;
  length.u32(static_cast<uint32_t>(version.size() + bytes.size()));
  const std::string sent = length.take() + version + std::string(bytes);
  Ends ends;
  if (write(ends.one.get(), sent.data(), sent.size()) != static_cast<ssize_t>(sent.size())) return;
  stream::Channel channel(std::move(ends.other));
  const auto word = channel.hear();
  if (!word || !*word) return;
  channel.say(**word);
  if (!channel.flush() || drain(ends.one.get()) != sent) std::abort();
}

/// What MUNGE has decoded of what a user brought: signed by nobody, by another one, or by the service user.
void check_voucher(std::string_view bytes) {
  constexpr uid_t kUid = 1000;
  const std::string step = "123.0";
  static const std::string version("\x02\x00\x56\x53", kVersionBytes);
  const std::string signer = "UID: " + std::to_string(geteuid());
  for (const std::string& output :
       {std::string(bytes), "STATUS: 0\n" + signer + "\n\n" + std::string(bytes),
        "STATUS:  17\n" + signer + "\n\n" + encode_base64(version + std::string(bytes)) + "\n"}) {
    ProgramRun run;
    run.output = output;
    const auto voucher = check_decoded(run, step, kUid);
    if (voucher &&
        (voucher->step != step || voucher->uid != kUid || output.find(signer.substr(5)) == std::string::npos))
      std::abort();
  }
}

}  // namespace

/// What the courier and the store program say to each other, and all that comes from other nodes of a step: the names
/// of files, claims, offers, vouchers, and words on a connection. Behind their versions.
void situla::fuzz(std::string_view bytes) {
  check(courier_line::encode(courier_line::Send()), bytes, courier_line::decode);
  check(encode(Claim()), bytes, decode_claim);
  check(stream::encode(stream::Offer()), bytes, stream::decode_offer);
  if (const auto name = courier_line::parse_file_name(bytes);
      name && courier_line::file_name(name->kind, name->node) != bytes)
    std::abort();
  check_words(bytes);
  check_voucher(bytes);
}
