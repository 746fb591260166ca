// Which login and password belong to a host? The `.credentials` file, read as the user it belongs to. COMPAT.md
// section 3. docker_config.hpp adds those of other tools. And which token servers may see them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/spec/environment.hpp"
#include "hooks/config/enroot_config.hpp"

namespace situla {

struct Credential {
  /// Where it may be sent: to a host; or to a registry and the token server that this registry names, as Docker does.
  enum class Scope : uint8_t { host, registry };
  friend constexpr Scope last_of(Scope) { return Scope::registry; }

  std::string host;  ///< Scope::host: without port, as `machine` names it; Scope::registry: host or host:port
  std::string login;
  std::string password;
  Scope scope = Scope::host;
  bool identity_token = false;  ///< `password` is an OAuth2 refresh token, for the token server only

  static auto fields(auto& it) { return std::tie(it.host, it.login, it.password, it.scope, it.identity_token); }
  friend bool operator==(const Credential&, const Credential&) = default;
};

/// An ordered list of credentials; the first that matches counts. A plain value that a pipe can carry: a process of the
/// user collects it, the importer, which is somebody else, uses it. Nothing in here is ever logged or put into an
/// error.
class CredentialSet {
 public:
  void add(Credential credential) { credentials_.push_back(std::move(credential)); }
  /// First entry of the host; with a login given, the first with that login.
  [[nodiscard]] const Credential* find(std::string_view host, std::string_view login) const;
  /// The same for a registry's host or host:port, of Scope::registry.
  [[nodiscard]] const Credential* find_registry(std::string_view authority, std::string_view login) const;
  [[nodiscard]] const std::vector<Credential>& all() const { return credentials_; }
  static auto fields(auto& set) { return std::tie(set.credentials_); }

 private:
  std::vector<Credential> credentials_;
};

/// Two hosts that belong together: what the server gives out for a login may be shown to the registry.
struct TokenServer {
  std::string registry;  ///< host, host:port or "*.domain"
  std::string server;    ///< the same of the realm that its challenge names; without a port at 443

  static auto fields(auto& pair) { return std::tie(pair.registry, pair.server); }
  friend bool operator==(const TokenServer&, const TokenServer&) = default;
};

/// "registry.test=auth.test other.test=auth.test"; ErrorKind::usage.
Result<std::vector<TokenServer>> parse_token_servers(std::string_view text);

/// Runs a password that begins with '$' through a shell; the error must not hold the password.
using PasswordExpander = std::function<Result<std::string>(const std::string& password)>;

/// Parses netrc text: `machine HOST login USER password P`, `default`, comments; `macdef` is skipped. A password that
/// cannot be expanded drops its entry with a warning that names host and login. Messages are about FILE:LINE.
Result<CredentialSet> parse_credentials(std::string_view text, const std::string& file, const PasswordExpander& expand,
                                        LogSink& log);

/// Reads $ENROOT_CONFIG_PATH/.credentials as the calling user, who must be the job's user: passwords like
/// `$(gcloud auth print-access-token)` are expanded by bash (sh where there is none) with `environment`. No file: an
/// empty set.
Result<CredentialSet> collect_credentials(const EnrootConfig& config, const Environment& environment, LogSink& log);

}  // namespace situla
