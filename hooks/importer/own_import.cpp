#include "hooks/importer/own_import.hpp"

#include <unistd.h>

#include "common/protocol/contract.hpp"
#include "common/protocol/messages.hpp"
#include "common/spec/site_config.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/socket.hpp"
#include "hooks/importer/modes.hpp"
#include "hooks/store/adoption.hpp"
#include "hooks/store/serve.hpp"
#include "hooks/turn/limits.hpp"

namespace situla {
namespace {

constexpr std::chrono::seconds kEndLimit{1};

/// The importer of one import: a fork, in the sandbox of a node's importers.
class OwnImporter {
 public:
  OwnImporter(const ImportRequest& request, const OwnStore& store, UniqueFd line)
      : own_{request, store}, line_(std::move(line)) {}

  /// Its pidfd, as StoreEvents::start_importer.
  Result<UniqueFd> start() {
    TRY_ASSIGN(process_, fork_child());
    if (!process_) {
      const auto tied = die_with_parent();
      close_other_fds(builder_fd::kBroker, {builder_fd::kBroker, line_.get()});
      _exit(tied ? run_importer(builder_fd::kBroker, line_.get(), &own_) : 1);
    }
    line_.reset();
    return process_.pidfd() >= 0 ? duplicate_fd(process_.pidfd(), "the importer's pidfd") : UniqueFd();
  }

  /// The store's error, if it is one: who ends by itself has told why, and says nothing through the store.
  [[nodiscard]] Error why(Error error) {
    if (!error.message().empty() || !process_) return error;
    const auto status = process_.wait_for(kEndLimit);
    if (!status || !*status || (*status)->signal == 0) return error;
    return Error(ErrorKind::failure, "the importer " + (*status)->text())
        .with_code(ErrorCode::helper)
        .with_hint("the node's system log may say more");
  }

 private:
  OwnImport own_;
  UniqueFd line_;  ///< its end, until it is there
  Child process_;
};

Result<void> send_image(const ServedImage& image, bool stays) {
  TRY(put_into_parcel(builder_fd::kOutput, {image.file.get()}));
  ImportDone done;
  done.digest = image.key.digest;
  done.stored = image.stored;
  done.stays = stays;
  return send_packet(builder_fd::kBroker, encode(done));
}

}  // namespace

Result<void> import_into_own_store(const ImportRequest& request, const EnrootConfig& config, const std::string& job,
                                   LogSink& log) {
  TRY_ASSIGN(const SiteConfig site, SiteConfig::load(SITULA_SYSCONF_DIR "/situla.toml"));
  TRY_ASSIGN(const OwnStore store, OwnStore::open(config));
  // Nobody else does it for a killed import of a user's.
  (void)sweep_dead_leases(store.path() + "/leases");
  (void)sweep_free_slots(store.path() + "/slots");
  TRY_ASSIGN(auto line, socket_pair());
  OwnImporter importer(request, store, std::move(line.second));
  std::optional<std::string> imported;
  const StoreEvents events{
      [&] { return importer.start(); }, [] { (void)send_packet(builder_fd::kBroker, encode(ImportBegins())); },
      [](const std::string& what) { (void)send_packet(builder_fd::kBroker, encode(ImportWaits{what})); },
      [&](const ServedImage& image, bool looks_again) {
        if (!image.stored) imported = image.key.name();
        return send_image(image, looks_again || imported);
      }};
  const auto served = serve_import({store.path(), "", geteuid(), job}, request, site,
                                   {builder_fd::kBroker, line.first.get()}, events, log);
  if (!served) return fail(store.shown(importer.why(served.error())));
  if (imported) (void)note_content(store.path(), *imported, builder_fd::kBroker);
  return {};
}

}  // namespace situla
