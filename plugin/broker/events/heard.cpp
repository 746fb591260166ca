#include "plugin/broker/events/heard.hpp"

#include "common/base/text.hpp"
#include "common/sys/socket.hpp"

namespace situla {
namespace {

std::string joined_printable(const std::vector<std::string_view>& parts, std::string_view separator) {
  std::vector<std::string> shown;
  for (const std::string_view part : parts) shown.push_back(printable(part));
  return join(shown, separator);
}

std::string printable_lines(std::string_view text) {
  return joined_printable(split(text, '\n'), "\n");
}

/// "ESC [ parameters final" (ECMA-48), and no other.
size_t sequence_length(std::string_view bytes) {
  constexpr size_t kLongest = 16;
  constexpr std::string_view kFinals = "ABCDEFGHJKfmhl";
  if (!bytes.starts_with("\x1b[")) return 0;
  size_t at = 2;
  while (at < bytes.size() && at < kLongest &&
         std::string_view("0123456789;?").find(bytes[at]) != std::string_view::npos)
    ++at;
  return at < bytes.size() && kFinals.find(bytes[at]) != std::string_view::npos ? at + 1 : 0;
}

struct MakeShowable {
  void operator()(Note& note) const { note.text = printable_lines(note.text); }
  void operator()(Failure& failure) const {
    failure.text = printable_lines(failure.text);
    failure.hint = printable_lines(failure.hint);
  }
  void operator()(Draw& drawing) const { drawing.bytes = drawable(drawing.bytes); }
  void operator()(Ready& ready) const { ready.root = printable(ready.root); }
  void operator()(ImportWaits& waits) const { waits.what = printable(waits.what); }
  void operator()(NoStore& none) const { none.why = printable_lines(none.why); }
  void operator()(RunningWanted& wanted) const { wanted.ignored = printable_lines(wanted.ignored); }
  /// The others have no text that is shown: paths and digests are checked where they are used.
  template <typename Other>
  void operator()(Other&) const {}
};

}  // namespace

std::string as_one_line(std::string_view text) {
  return joined_printable(split_nonempty(text, '\n'), "; ");
}

std::string drawable(std::string_view bytes) {
  std::string kept;
  while (!bytes.empty()) {
    if (const size_t length = sequence_length(bytes); length > 0) {
      kept += bytes.substr(0, length);
      bytes.remove_prefix(length);
      continue;
    }
    size_t end = bytes.find_first_of("\x1b\r\n");
    if (end == 0) {
      if (bytes.front() != '\x1b') kept += bytes.front();
      bytes.remove_prefix(1);
      continue;
    }
    end = std::min(end, bytes.size());
    kept += printable(bytes.substr(0, end));
    bytes.remove_prefix(end);
  }
  return kept;
}

Result<std::optional<Message>> hear(int socket) {
  const auto bytes = receive_bytes(socket, kMaxMessageBytes);
  if (!bytes && bytes.error().errnum() != EAGAIN) return fail(bytes.error());
  if (!bytes || !*bytes) return std::optional<Message>();
  TRY_ASSIGN(Message message, decode(**bytes));
  std::visit(MakeShowable{}, message);
  return std::optional<Message>(std::move(message));
}

Result<std::optional<Heard>> hear_store(int socket) {
  auto packet = receive_packet(socket, kMaxMessageBytes);
  if (!packet && packet.error().errnum() != EAGAIN) return fail(packet.error());
  if (!packet || !*packet) return std::optional<Heard>();
  TRY_ASSIGN(Message message, decode((*packet)->bytes));
  std::visit(MakeShowable{}, message);
  return std::optional<Heard>(Heard{std::move(message), std::move((*packet)->fds)});
}

Error error_of(const Failure& failure) {
  return failure.error();
}

std::optional<Note> NoteLimit::allow(const Note& note) {
  constexpr size_t kMostBytes = 65536;
  constexpr size_t kLineBytes = 64;  // what the log puts before it
  if (bytes_ > kMostBytes) return std::nullopt;
  bytes_ += note.text.size() + kLineBytes;
  if (bytes_ <= kMostBytes) return note;
  return Note{LogLevel::warning, "more messages of this step are not shown"};
}

Result<void> tell(int socket, const Message& message, const std::vector<int>& fds) {
  return send_packet(socket, encode(message), fds, Wait::no);
}

}  // namespace situla
