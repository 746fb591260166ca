// What does an importer need to know? One value, collected by a process of the user, that a pipe carries to the
// importer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/spec/environment.hpp"
#include "common/spec/image_reference.hpp"
#include "common/spec/import_budget.hpp"
#include "common/spec/progress_view.hpp"
#include "common/spec/registry_rule.hpp"
#include "hooks/config/enroot_config.hpp"
#include "hooks/request/certificates.hpp"
#include "hooks/request/credentials.hpp"
#include "hooks/request/engine_settings.hpp"
#include "hooks/request/registries_conf.hpp"

namespace situla {

/// A platform as image indexes name it: Go's words.
struct Platform {
  std::string architecture;  ///< "amd64", "arm64", "ppc64le"
  std::string variant;       ///< "v8" or empty
  std::string os = "linux";

  /// Accepts x86_64, aarch64, ppc64le, their Debian names (amd64, arm64, ppc64el) and OCI's ("linux/arm64/v8").
  /// ErrorKind::usage.
  static Result<Platform> parse(std::string_view text);
  /// Of the running machine.
  static Platform host();
  friend bool operator==(const Platform&, const Platform&) = default;
};

/// The settings of enroot.conf and the environment that concern an import. All of them are the user's, none decides
/// anything privileged.
struct ImportSettings {
  std::string ssl_cert_file, ssl_cert_dir;  ///< names, for messages; what they held is `trust`
  TrustAnchors trust;
  std::string http_proxy, https_proxy, all_proxy, no_proxy;
  std::vector<TokenServer> token_servers;  ///< ENROOT_TOKEN_SERVERS
  bool allow_http = false;                 ///< ENROOT_ALLOW_HTTP: use http:// instead of https://
  uint32_t max_connections = 10;           ///< ENROOT_MAX_CONNECTIONS
  uint32_t max_processors = 0;             ///< ENROOT_MAX_PROCESSORS; 0: as many as this process may use
  uint32_t connect_timeout = 30;           ///< ENROOT_CONNECT_TIMEOUT, seconds
  uint32_t transfer_timeout = 0;           ///< ENROOT_TRANSFER_TIMEOUT, seconds for one request; 0: none
  uint32_t stall_timeout = 60;    ///< ENROOT_STALL_TIMEOUT, seconds below stall_rate; then it is tried again. 0: never
  uint32_t stall_rate = 1024;     ///< ENROOT_STALL_RATE, bytes per second that one connection has at least
  uint32_t transfer_retries = 0;  ///< ENROOT_TRANSFER_RETRIES; RetryLimits::of() says what is made of it
  std::string squash_options;     ///< ENROOT_SQUASH_OPTIONS, for import_to_file() only
  std::optional<uint32_t> source_date_epoch;  ///< SOURCE_DATE_EPOCH, for import_to_file() only; seconds

  static auto fields(auto& it) {
    return std::tie(it.ssl_cert_file, it.ssl_cert_dir, it.http_proxy, it.https_proxy, it.all_proxy, it.no_proxy,
                    it.squash_options, it.trust, it.token_servers, it.allow_http, it.max_connections, it.max_processors,
                    it.connect_timeout, it.transfer_timeout, it.stall_timeout, it.stall_rate, it.transfer_retries,
                    it.source_date_epoch);
  }
};
constexpr uint32_t kLeastRetries = 3;

struct ImportRequest {
  std::string image;     ///< as typed, a reference that ImageReference::parse() accepts
  std::string platform;  ///< as for Platform::parse(); empty: the importer's own machine
  CredentialSet credentials;
  ImportSettings settings;
  ProgressView progress;  ///< of whoever waits, for an importer that cannot see it
  EngineSettings engine;  ///< for dockerd:// and podman:// only
  std::string
      hint;  ///< shown when the image cannot be found, e.g. that a file of that name exists in the user's directory
  /// Mirrors and blocked registries. Not serialized: the importer, whose images are everybody's, reads the
  /// administrator's rules itself.
  std::vector<RegistryRule> rules;
  /// What the image may make the import take. Not serialized either: the administrator's.
  ImportBudget budget;
  std::string resolve;  ///< --container-resolve, for the node's store; empty: the site's rule
  /// Of an importer that knows more than the user does. Not serialized.
  std::optional<NamedManifest> known;  ///< what the name meant last (ResolvedImage::is_known)
  bool impatient = false;              ///< a registry that does not answer at once is not waited for
  bool has_stand_in = false;           ///< one that fails is asked a few times, and not for minutes

  static auto fields(auto& it) {
    return std::tie(it.image, it.platform, it.hint, it.resolve, it.progress, it.settings, it.credentials);
  }
  /// For messages: the image as typed, and what that means where it leaves the registry open: "debian:99
  /// (registry-1.docker.io/library/debian:99)". Printable.
  [[nodiscard]] std::string image_in_words() const;
  /// The very manifest, whatever the name means by now. For a registry's image only.
  Result<void> pin(const Digest& manifest);

  static constexpr size_t kMaxBytes = size_t{2} << 20U;
  /// A versioned byte string; at most kMaxBytes (ErrorKind::usage beyond).
  [[nodiscard]] Result<std::string> serialize() const;
  /// Trusts nothing; ErrorKind::corrupt.
  static Result<ImportRequest> deserialize(std::string_view bytes);
};

/// Where imports of this user know of each other's layers (layer_cache.hpp): a directory that users may share.
std::string user_layer_cache(const EnrootConfig& config);

/// Run as the user: checks the reference, collects credentials and settings. `environment`: the job's or the caller's;
/// its PWD is where a file of the image's name is looked for. Logins are collected for every place that the rules let
/// be asked; a blocked registry is ErrorKind::denied. The caller holds a KeepSecrets (common/sys/process/secrecy.hpp).
Result<ImportRequest> make_import_request(std::string_view image, const EnrootConfig& config,
                                          const Environment& environment, const RuleFiles& rule_files, LogSink& log,
                                          std::string_view platform = {});

}  // namespace situla
