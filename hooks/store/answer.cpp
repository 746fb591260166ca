#include "hooks/store/answer.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <sstream>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/sys/file.hpp"
#include "common/sys/pipe.hpp"
#include "common/sys/socket.hpp"
#include "hooks/request/registries_conf.hpp"
#include "hooks/request/request.hpp"
#include "hooks/store/house_commands.hpp"
#include "hooks/store/resolution.hpp"
#include "hooks/store/store_socket.hpp"
#include "hooks/turn/limits.hpp"

namespace situla {
namespace {

namespace message = store_socket;

constexpr std::chrono::seconds kQuestionLimit{10};
constexpr uint64_t kPieceBytes = uint64_t{64} << 20U;  // between two looks whether anybody still waits

Result<void> tell(int socket, const message::Message& what, const std::vector<int>& fds = {}) {
  return send_packet(socket, message::encode(what), fds);
}

/// What is written goes to the user a line at a time. An error as soon as nobody is there any more.
class UserStream final : public std::stringbuf {
 public:
  explicit UserStream(int socket) : std::stringbuf(std::ios::out), socket_(socket) {}
  int sync() override {
    const std::string text = str();
    str("");
    for (size_t at = 0; at < text.size(); at += message::kMaxText)
      if (!tell(socket_, message::Said{text.substr(at, message::kMaxText)})) return -1;
    return has_hung_up(socket_) ? -1 : 0;
  }

 private:
  int socket_;
};

class UserAnswer {
 public:
  UserAnswer(const SiteConfig& config, const ImageStore& store, int socket, uid_t uid)
      : config_(config), store_(store), socket_(socket), uid_(uid) {}

  Result<void> to(const message::CommandWanted& wanted) const {
    UserStream buffer(socket_);
    std::ostream out(&buffer);
    const auto done = run_house_command(store_, wanted.words, uid_, out, std::time(nullptr));
    out.flush();
    message::Ended ended;
    if (!done) ended = message::Ended::of(done.error());
    return tell(socket_, ended);
  }

  Result<void> to(const message::CopyWanted& wanted, const std::vector<UniqueFd>& fds) const {
    if (fds.size() != 2) return fail(ErrorKind::corrupt, "a user asked for a copy without saying of what, or where to");
    TRY_ASSIGN(const auto image, find(fds[0].get(), wanted.offline));
    return image ? copy(*image, fds[1].get()) : tell(socket_, message::NoCopy());
  }

 private:
  struct Found {
    Grant grant;
    UniqueFd file;
    uint64_t bytes = 0, age = 0;
  };

  [[nodiscard]] Result<std::optional<Found>> find(int request_file, bool offline) const {
    TRY_ASSIGN(const std::string bytes, read_sealed_memory(request_file, ImportRequest::kMaxBytes));
    TRY_ASSIGN(ImportRequest request, ImportRequest::deserialize(bytes));
    if (image_kind(request.image) != ImageKind::registry) return std::nullopt;
    TRY_ASSIGN(request.rules, load_registry_rules(RuleFiles::of_node()));
    TRY_ASSIGN(const Origin origin, origin_of(request));
    TRY_ASSIGN(ImageQuestion question, ImageQuestion::of(request, uid_, origin));
    TRY_ASSIGN(const Resolution::Settings settings, Resolution::settings_of(config_, ""));
    const auto now = static_cast<uint64_t>(std::time(nullptr));
    const bool by_digest = Digest::parse(question.name).has_value();
    const Resolution resolution(store_.directory(), std::move(question), "", settings, now);
    // Who says that the registry does not answer may be lying, and then has what he would have without it.
    const auto grant = offline ? resolution.offline() : resolution.last();
    if (!grant || (!offline && !(by_digest && resolution.granted()))) return std::nullopt;
    auto file = store_.find_for(uid_, {grant->manifest, origin_key(origin), "", std::nullopt});
    struct stat status {};
    if (!file || fstat(file->second.get(), &status) != 0) return std::nullopt;
    store_.touch(file->first.name());
    return Found{*grant, std::move(file->second), static_cast<uint64_t>(status.st_size), now - grant->time};
  }

  [[nodiscard]] Result<void> copy(const Found& image, int file) const {
    const message::Copying copying{image.grant.manifest, image.bytes, image.age};
    const Sharing sharing = share_with_stranger(image.file.get(), file);
    if (sharing == Sharing::elsewhere) return send(image, copying);
    TRY(tell(socket_, copying));
    for (uint64_t at = 0; sharing == Sharing::beside && at < image.bytes; at += kPieceBytes) {
      TRY(copy_range(image.file.get(), at, file, at, std::min(kPieceBytes, image.bytes - at)));
      if (has_hung_up(socket_)) return {};
    }
    return tell(socket_, message::Copied());
  }

  [[nodiscard]] Result<void> send(const Found& image, const message::Copying& copying) const {
    TRY_ASSIGN(auto pipe, make_pipe());
    TRY(tell(socket_, copying, {pipe.first.get()}));
    pipe.first.reset();
    TRY(file_to_pipe(image.file.get(), pipe.second.get(), image.bytes));
    return tell(socket_, message::Copied());
  }

  const SiteConfig& config_;
  const ImageStore& store_;
  int socket_;
  uid_t uid_;
};

Result<void> answer(const SiteConfig& config, int socket, uid_t uid, const message::Message& question,
                    const std::vector<UniqueFd>& fds) {
  TRY_ASSIGN(const ImageStore store, ImageStore::open(config.store_path));
  TRY_ASSIGN(const auto slot, ImportSlot::acquire(
                                  store.slots(), uid, "", config.imports_per_user, [] {}, [] { return true; }));
  const UserAnswer answer(config, store, socket, uid);
  if (const auto* wanted = std::get_if<message::CopyWanted>(&question))
    return slot ? answer.to(*wanted, fds) : tell(socket, message::NoCopy());
  const auto* command = std::get_if<message::CommandWanted>(&question);
  if (command == nullptr) return fail(ErrorKind::corrupt, "a user's message is none of a user");
  if (slot) return answer.to(*command);
  return tell(socket, message::Ended{ErrorKind::failure,
                                     "you have " + std::to_string(config.imports_per_user) +
                                         " imports and questions on this node already",
                                     "try again when one has ended; see imports_per_user in situla.toml(5)"});
}

}  // namespace

Result<void> answer_user(const SiteConfig& config, int socket) {
  TRY_ASSIGN(const PeerCredentials peer, peer_credentials(socket));
  TRY(wait_for_packet(socket, kQuestionLimit));
  TRY_ASSIGN(auto packet, receive_packet(socket, message::kMaxBytes));
  if (!packet) return {};
  TRY_ASSIGN(const message::Message question, message::decode(packet->bytes));
  auto answered = answer(config, socket, peer.uid, question, packet->fds);
  if (!answered) (void)tell(socket, message::Ended::of(answered.error()));
  return answered;
}

}  // namespace situla
