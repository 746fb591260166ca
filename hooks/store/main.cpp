// situla-store: started by situla-broker, as the service user: `situla-store --store PATH --uid UID --job JOB.STEP
// [--variant V] [--node K --nodes N]`, with the descriptors of store_fd (common/protocol/contract.hpp), or
// `situla-store --store PATH
// --sweep [--job JOB.STEP]`, or `--view UID:GID [--way reflink|dm]`, or `--lend NAME`. By `situla`, for the
// administrator: `situla-store images|prune|rm|pin|verify --store PATH ...` (house_commands.hpp). By systemd, for a
// process of any user that has connected to its socket: `situla-store --answer` (answer.hpp). By `situla import`, for
// its own user and his own store: `--answer --store PATH`.
#include <chrono>
#include <csignal>
#include <ctime>
#include <iostream>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include "common/base/chance.hpp"
#include "common/base/text.hpp"
#include "common/base/thrown.hpp"
#include "common/protocol/contract.hpp"
#include "common/protocol/messages.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/process/secrecy.hpp"
#include "common/sys/socket.hpp"
#include "hooks/registry/sha256.hpp"
#include "hooks/request/registries_conf.hpp"
#include "hooks/store/adoption.hpp"
#include "hooks/store/answer.hpp"
#include "hooks/store/counts.hpp"
#include "hooks/store/house_commands.hpp"
#include "hooks/store/local_tier.hpp"
#include "hooks/store/serve.hpp"
#include "hooks/store/view.hpp"
#include "hooks/turn/limits.hpp"

namespace situla {
namespace {

class BrokerNotes final : public LogSink {
 public:
  void write(LogLevel level, std::string_view text) noexcept override {
    (void)send_packet(store_fd::kBroker, encode(Note{level, std::string(text)}));
  }
};

struct Arguments {
  StoreJob job;
  bool sweep = false;
  std::optional<Owner> view;
  std::string way;   ///< of a view; empty: the best
  std::string lend;  ///< the name of an image; empty: none
};

std::optional<Owner> parse_owner(std::string_view text) {
  const auto colon = text.find(':');
  const auto user = parse_unsigned(text.substr(0, colon));
  const auto group = colon == text.npos ? std::nullopt : parse_unsigned(text.substr(colon + 1));
  if (!user || !group || *user >= UINT32_MAX || *group >= UINT32_MAX) return std::nullopt;
  return Owner{static_cast<uid_t>(*user), static_cast<gid_t>(*group)};
}

Result<Arguments> parse_arguments(const std::vector<std::string>& words) {
  Arguments arguments;
  for (size_t i = 1; i < words.size(); i += words[i] == "--sweep" ? 1 : 2) {
    if (words[i] == "--sweep") {
      arguments.sweep = true;
      continue;
    }
    if (i + 1 == words.size()) return fail(ErrorKind::usage, "store: " + printable(words[i]) + " needs a value");
    const std::string& value = words[i + 1];
    if (words[i] == "--store") {
      arguments.job.store = value;
    } else if (words[i] == "--variant") {
      arguments.job.variant = value;
    } else if (words[i] == "--job") {
      arguments.job.job = value;
    } else if (words[i] == "--uid") {
      const auto uid = parse_unsigned(value);
      if (!uid || *uid >= UINT32_MAX) return fail(ErrorKind::usage, "store: --uid needs a number");
      arguments.job.uid = static_cast<uid_t>(*uid);
    } else if (words[i] == "--node" || words[i] == "--nodes") {
      const auto number = parse_unsigned(value);
      if (!number || *number >= UINT32_MAX) return fail(ErrorKind::usage, "store: " + words[i] + " needs a number");
      (words[i] == "--node" ? arguments.job.node : arguments.job.nodes) = static_cast<uint32_t>(*number);
    } else if (words[i] == "--lend") {
      arguments.lend = value;
    } else if (words[i] == "--view") {
      arguments.view = parse_owner(value);
      if (!arguments.view) return fail(ErrorKind::usage, "store: --view needs UID:GID");
    } else if (words[i] == "--way" && (value == "reflink" || value == "dm")) {
      arguments.way = value;
    } else {
      return fail(ErrorKind::usage, "store: unknown option " + printable(words[i]));
    }
  }
  if (!arguments.job.store.starts_with('/')) return fail(ErrorKind::usage, "store: --store needs an absolute path");
  if (!arguments.job.variant.empty() && arguments.job.variant != "lz4")
    return fail(Error(ErrorKind::usage, "unknown image variant '" + printable(arguments.job.variant) + "'")
                    .with_code(ErrorCode::option)
                    .with_hint("there is 'lz4', and none"));
  return arguments;
}

/// `file`: the store's, or this node's copy of it.
Result<void> hand_over(const ServedImage& image, int file, bool stays) {
  ImportDone done;
  done.local = file != image.file.get();
  done.digest = image.key.digest;
  done.store_name = image.key.name();
  done.stored = image.stored;
  done.stays = stays;
  done.received = image.received;
  return send_packet(store_fd::kBroker, encode(done), {file});
}

Result<UniqueFd> start_importer() {
  TRY(send_packet(store_fd::kBroker, encode(ImporterWanted())));
  TRY_ASSIGN(auto answer, receive_packet(store_fd::kBroker, kMaxMessageBytes));
  if (!answer) return fail(ErrorKind::cancelled, "");
  TRY_ASSIGN(const Message message, decode(answer->bytes));
  if (!std::holds_alternative<ImporterStarted>(message))
    return fail(ErrorKind::corrupt, "the broker sent a message out of turn");
  return answer->fds.empty() ? UniqueFd() : std::move(answer->fds[0]);
}

/// For this node's next steps, no longer than this one runs, and with the processor time that nobody wants.
Result<void> make_copy(const LocalTier& tier, const std::string& name) {
  constexpr std::chrono::seconds kStart{10};  // what a container reads first it should not wait for
  TRY(run_when_idle());
  pollfd step{store_fd::kBroker, POLLRDHUP, 0};
  // The nodes of a step began together, and the store may be one server's.
  if (poll(&step, 1, static_cast<int>(by_chance(kStart, 1, 2).count())) != 0) return {};
  return tier.fill(name, [] { return !has_hung_up(store_fd::kBroker); });
}

Result<void> serve(const StoreJob& job, LogSink& log) {
  if (auto why = ImageStore::why_none(job.store)) {
    TRY(send_packet(store_fd::kBroker, encode(NoStore{std::move(*why)})));
    // Whoever writes the request is not to fail before that is heard.
    return read_all(store_fd::kRequest, ImportRequest::kMaxBytes).map([](const std::string&) {});
  }
  TRY_ASSIGN(const SiteConfig config, SiteConfig::load(SITULA_SYSCONF_DIR "/situla.toml"));
  // What takes time is done before the request comes, while Slurm still makes the step: the node's rules, and
  // libcrypto's own start, a millisecond.
  auto rules = load_registry_rules(RuleFiles::of_node());
  (void)digest_of("");
  const auto tier = LocalTier::open(config, job.store, log);
  TRY_ASSIGN(const std::string bytes, read_all(store_fd::kRequest, ImportRequest::kMaxBytes));
  if (bytes.empty()) return fail(ErrorKind::cancelled, "");  // whoever was to write it has said why
  TRY_ASSIGN(ImportRequest request, ImportRequest::deserialize(bytes));
  // The administrator's and nobody else's: what a mirror answers counts as the registry's own answer (mirrors.hpp).
  TRY_ASSIGN(request.rules, std::move(rules));
  std::string name;
  bool imported = false, lacks_copy = false, local = false;
  const auto served = [&](const ServedImage& image, bool goes_on) {
    name = image.key.name();
    imported = !image.stored;
    const auto copy = tier ? tier->find(name, image.file.get()) : std::nullopt;
    local = copy.has_value();
    lacks_copy = tier && !copy;
    if (local) log.debug("this node has a copy of the image in " + config.local_tier);
    return hand_over(image, copy ? copy->get() : image.file.get(), goes_on || imported || lacks_copy);
  };
  const StoreEvents events{
      start_importer, [] { (void)send_packet(store_fd::kBroker, encode(ImportBegins())); },
      [](const std::string& what) { (void)send_packet(store_fd::kBroker, encode(ImportWaits{what})); }, served};
  const int courier = job.nodes > 1 ? store_fd::kCourier : -1;
  TRY(serve_import(job, request, config, {store_fd::kBroker, store_fd::kImporter, courier}, events, log));
  // The step has its image: nothing that goes wrong from here on is its matter.
  if (local) (void)add_counts(job.store, {.local = 1});
  if (imported) (void)note_content(job.store, name, store_fd::kBroker);
  if (lacks_copy) (void)make_copy(*tier, name);
  return {};
}

std::optional<LocalTier> open_tier(const std::string& store) {
  NullLog log;
  const auto config = SiteConfig::load(SITULA_SYSCONF_DIR "/situla.toml");
  return config ? LocalTier::open(*config, store, log) : std::nullopt;
}

/// Of the image that the broker holds, for a user who has it already.
Result<void> make_view(const Arguments& arguments) {
  if (arguments.way != "dm") {
    TRY_ASSIGN(const ImageStore store, ImageStore::open(arguments.job.store));
    const auto tier = open_tier(arguments.job.store);
    const bool local = tier && tier->holds(store_fd::kImage);
    const auto view = share_view(local ? tier->copies().images() : store.images(), store_fd::kImage, *arguments.view);
    if (view) return send_packet(store_fd::kBroker, encode(ViewMade{true, 0}), {view->get()});
    if (view.error().kind() != ErrorKind::unsupported || arguments.way == "reflink") return fail(view.error());
  }
  TRY_ASSIGN(const ViewBlocks blocks, view_blocks(store_fd::kImage, *arguments.view));
  return send_packet(store_fd::kBroker, encode(ViewMade{false, blocks.offset}), {blocks.memory.get()});
}

/// For a user whose named container was made of that image: the broker knows, and will mount it.
Result<void> lend_image(const Arguments& arguments) {
  TRY_ASSIGN(const ImageStore store, ImageStore::open(arguments.job.store));
  const auto image = store.find_named(arguments.lend);
  if (!image) return fail(ErrorKind::not_found, "the store has no image " + printable(arguments.lend) + " any more");
  store.touch(arguments.lend);
  const auto tier = open_tier(arguments.job.store);
  const auto copy = tier ? tier->find(arguments.lend, image->get()) : std::nullopt;
  return send_packet(store_fd::kBroker, encode(ImageLent{}), {copy ? copy->get() : image->get()});
}

/// words: the program's name, the command, "--store", PATH, and what run_house_command() takes.
Result<void> keep_house(std::vector<std::string> words) {
  if (words.size() < 4 || words[2] != "--store" || !words[3].starts_with('/'))
    return fail(ErrorKind::usage, "store: --store needs an absolute path");
  TRY_ASSIGN(const ImageStore images, ImageStore::open(words[3]));
  words.erase(words.begin() + 2, words.begin() + 4);
  words.erase(words.begin());
  return run_house_command(images, words, std::nullopt, std::cout, std::time(nullptr));
}

/// For systemd, which has accepted the connection of a user; or for a user himself, about his own store.
int answer(const std::string& own_store) {
  (void)std::signal(SIGPIPE, SIG_IGN);
  umask(077);
  auto config = SiteConfig::load(SITULA_SYSCONF_DIR "/situla.toml");
  if (config && !own_store.empty()) config->store_path = own_store;
  const auto answered = config ? answer_user(*config, store_fd::kUser) : fail(config.error());
  if (!answered) std::cerr << "situla-store: " << answered.error().text() << '\n';
  return answered ? 0 : 1;
}

/// What killed imports have left; those of the step that has lost its broker die at this moment.
void sweep(const StoreJob& job) {
  constexpr std::chrono::seconds kLimit{10};
  constexpr std::chrono::milliseconds kPause{20};
  for (const auto end = std::chrono::steady_clock::now() + kLimit;;) {
    const bool leases = sweep_dead_leases(job.store + "/leases", job.job);
    const bool slots = sweep_free_slots(job.store + "/slots", job.job);
    if ((leases && slots) || std::chrono::steady_clock::now() > end) break;
    std::this_thread::sleep_for(kPause);
  }
  if (const auto store = ImageStore::open(job.store)) store->sweep(file_system_time(store->leases()).value_or(0));
}

int run(const std::vector<std::string>& words) {
  if (words.size() == 2 && words[1] == "--answer") return answer("");
  if (words.size() == 4 && words[1] == "--answer" && words[2] == "--store") return answer(words[3]);
  if (words.size() > 1 && is_house_command(words[1])) {
    umask(077);
    const auto kept = keep_house(words);
    if (!kept) std::cerr << "[ERROR] " << kept.error().text() << '\n';
    return kept ? 0 : 1;
  }
  const KeepSecrets secrets;
  (void)std::signal(SIGPIPE, SIG_IGN);
  umask(077);
  const auto arguments = parse_arguments(words);
  if (arguments && arguments->sweep) {
    sweep(arguments->job);
    return 0;
  }
  BrokerNotes log;
  const auto served = with_thrown_errors([&]() -> Result<void> {
    if (!arguments) return fail(arguments.error());
    if (arguments->view) return make_view(*arguments);
    return arguments->lend.empty() ? serve(arguments->job, log) : lend_image(*arguments);
  });
  if (served) return 0;
  const Error& error = served.error();
  if (!error.message().empty()) (void)send_packet(store_fd::kBroker, encode(Failure::of(error)));
  return 1;
}

}  // namespace
}  // namespace situla

int main(int argc, char** argv) {
  return situla::run({argv, argv + argc});
}
