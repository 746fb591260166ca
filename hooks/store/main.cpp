// situla-store: started by situla-broker, as the service user: `situla-store --store PATH --uid UID --job JOB.STEP
// [--variant V]`, with the descriptors of store_fd (common/protocol/contract.hpp), or `situla-store --store PATH
// --sweep [--job JOB.STEP]`. By `situla`, for the administrator: `situla-store images|prune|rm|pin --store PATH ...`
// (keep_house()).
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <ctime>
#include <iostream>
#include <thread>

#include <fcntl.h>
#include <sys/stat.h>

#include "common/base/text.hpp"
#include "common/protocol/contract.hpp"
#include "common/protocol/messages.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/secrecy.hpp"
#include "common/sys/socket.hpp"
#include "hooks/request/registries_conf.hpp"
#include "hooks/store/housekeeping.hpp"
#include "hooks/store/limits.hpp"
#include "hooks/store/serve.hpp"

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
};

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
    } else {
      return fail(ErrorKind::usage, "store: unknown option " + printable(words[i]));
    }
  }
  if (!arguments.job.store.starts_with('/')) return fail(ErrorKind::usage, "store: --store needs an absolute path");
  if (!arguments.job.variant.empty() && arguments.job.variant != "lz4")
    return fail(Error(ErrorKind::usage, "unknown image variant '" + printable(arguments.job.variant) + "'")
                    .with_hint("there is 'lz4', and none"));
  return arguments;
}

Result<void> hand_over(const ServedImage& image, bool looks_again) {
  ImportDone done;
  done.digest = image.key.digest;
  done.store_name = image.key.name();
  done.stored = image.stored;
  done.stays = looks_again;
  return send_packet(store_fd::kBroker, encode(done), {image.file.get()});
}

Result<void> serve(const StoreJob& job, LogSink& log) {
  TRY_ASSIGN(const SiteConfig config, SiteConfig::load(SITULA_SYSCONF_DIR "/situla.toml"));
  TRY_ASSIGN(const std::string bytes, read_all(store_fd::kRequest, ImportRequest::kMaxBytes));
  if (bytes.empty()) return fail(ErrorKind::cancelled, "");  // whoever was to write it has said why
  TRY_ASSIGN(ImportRequest request, ImportRequest::deserialize(bytes));
  // The administrator's and nobody else's: what a mirror answers counts as the registry's own answer (mirrors.hpp).
  TRY_ASSIGN(request.rules, load_registry_rules(RuleFiles::of_node()));
  const bool has_process = fcntl(store_fd::kImporterProcess, F_GETFD) >= 0;
  return serve_import(job, request, config,
                      {store_fd::kBroker, store_fd::kImporter, has_process ? store_fd::kImporterProcess : -1},
                      {[] { (void)send_packet(store_fd::kBroker, encode(ImportBegins())); }, hand_over}, log);
}

/// `images [--json]`, `prune --unused-for SECONDS [--to BYTES] [--dry-run]`, `rm WORD...`, `pin [--undo] WORD...`: what
/// the command line of `situla` has checked.
Result<void> keep_house(const std::vector<std::string>& words) {
  std::string store;
  Housekeeping::Prune prune;
  bool json = false, undo = false;
  std::vector<std::string> names;
  for (size_t i = 2; i < words.size(); ++i) {
    const std::string& word = words[i];
    const bool has_value = word == "--store" || word == "--unused-for" || word == "--to";
    if (has_value && i + 1 == words.size()) return fail(ErrorKind::usage, "store: " + word + " needs a value");
    const std::string value = has_value ? words[++i] : "";
    const auto number = parse_unsigned(value);
    if (word == "--store")
      store = value;
    else if (word == "--unused-for" && number)
      prune.unused_for = std::chrono::seconds(*number);
    else if (word == "--to" && number)
      prune.to = *number;
    else if (word == "--json")
      json = true;
    else if (word == "--undo")
      undo = true;
    else if (word == "--dry-run")
      prune.dry_run = true;
    else if (word.starts_with("--"))
      return fail(ErrorKind::usage, "store: " + printable(word) + " is not an option, or its value is no number");
    else
      names.push_back(word);
  }
  if (!store.starts_with('/')) return fail(ErrorKind::usage, "store: --store needs an absolute path");
  TRY_ASSIGN(const ImageStore images, ImageStore::open(store));
  const Housekeeping house(images, std::cout, std::time(nullptr));
  if (words[1] == "images") return house.show(json);
  if (words[1] == "prune") return house.prune(prune);
  return words[1] == "rm" ? house.remove(names) : house.pin(names, !undo);
}

bool is_housekeeping(const std::vector<std::string>& words) {
  constexpr std::array<std::string_view, 4> kWords = {"images", "prune", "rm", "pin"};
  return words.size() > 1 && std::find(kWords.begin(), kWords.end(), words[1]) != kWords.end();
}

/// What killed imports have left; those of the step that has lost its broker die at this moment.
void sweep(const StoreJob& job) {
  constexpr std::chrono::seconds kLimit{10};
  constexpr std::chrono::milliseconds kPause{20};
  for (const auto end = std::chrono::steady_clock::now() + kLimit;;) {
    const bool leases = sweep_dead_leases(job.store + "/leases", job.job);
    const bool slots = sweep_free_slots(job.store + "/slots", job.job);
    if ((leases && slots) || std::chrono::steady_clock::now() > end) return;
    std::this_thread::sleep_for(kPause);
  }
}

int run(const std::vector<std::string>& words) {
  if (is_housekeeping(words)) {
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
  const auto served = arguments ? serve(arguments->job, log) : fail(arguments.error());
  if (served) return 0;
  const Error& error = served.error();
  if (!error.message().empty())
    (void)send_packet(store_fd::kBroker, encode(Failure{error.kind(), error.message(), error.hint()}));
  return 1;
}

}  // namespace
}  // namespace situla

int main(int argc, char** argv) {
  return situla::run({argv, argv + argc});
}
