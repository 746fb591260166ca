// Which registries and token servers belong together, as somebody wrote it down?
#pragma once

#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "common/base/result.hpp"

namespace situla {

/// Two hosts that belong together: what the server gives out for a login may be shown to the registry.
struct TokenServer {
  std::string registry;  ///< host, host:port or "*.domain"
  std::string server;    ///< the same of the realm that its challenge names

  static auto fields(auto& pair) { return std::tie(pair.registry, pair.server); }
  friend bool operator==(const TokenServer&, const TokenServer&) = default;
};

/// "registry.test=auth.test other.test=auth.test"; ErrorKind::usage.
Result<std::vector<TokenServer>> parse_token_servers(std::string_view text);

}  // namespace situla
