#include "hooks/registry/login.hpp"

#include <algorithm>
#include <array>

#include "common/base/text.hpp"
#include "hooks/registry/auth.hpp"

namespace situla {
namespace {

struct KnownPair {
  std::string_view registry, server, service;
};

/// Registries whose token server is another host, and the service that they are there, by the operators' documentation.
/// Those that are their own (GitHub, Quay, Harbor, Azure, Google) and those that ask by Basic (Amazon) need no line.
constexpr std::array<KnownPair, 5> kPairs = {{
    {"registry-1.docker.io", "auth.docker.io", "registry.docker.io"},
    {"docker.io", "auth.docker.io", "registry.docker.io"},
    {"index.docker.io", "auth.docker.io", "registry.docker.io"},
    {"nvcr.io", "authn.nvidia.com", "registry"},
    {"registry.gitlab.com", "gitlab.com", "container_registry"},
}};

std::string port_of(std::string_view place) {
  return std::string(place.substr(place.rfind(':') + 1));
}

/// pattern: host, host:port or "*.domain".
bool matches(std::string_view pattern, const std::string& host, const std::string& place) {
  const std::string wanted = to_lower(pattern);
  if (wanted.starts_with("*.")) return host.size() > wanted.size() - 1 && host.ends_with(wanted.substr(1));
  return wanted == host || wanted == place.substr(place.find("://") + 3);
}

/// A server that was written down without a port is the one at 443: another may be another user's program.
bool is_agreed_server(std::string_view pattern, const std::string& host, const std::string& place) {
  return matches(pattern, host, place) && (port_of(place) == "443" || place.ends_with("://" + to_lower(pattern)));
}

/// A registry that was written down without a port may have any, if its certificate says who answers there. Without one
/// it is that at the usual port.
bool is_agreed_registry(std::string_view pattern, const AskingRegistry& registry, const std::string& host,
                        const std::string& place) {
  const bool usual = port_of(place) == (place.starts_with("https://") ? "443" : "80");
  return matches(pattern, host, place) && (registry.verified || usual || place.ends_with("://" + to_lower(pattern)));
}

}  // namespace

std::string place_of(std::string_view url) {
  const bool tls = !url.starts_with("http://");
  const std::string host = to_lower(host_of_url(url));
  if (const size_t scheme = url.find("://"); scheme != std::string_view::npos) url.remove_prefix(scheme + 3);
  const std::string_view authority = url.substr(0, url.find_first_of("/?#"));
  const size_t colon = authority.rfind(':');
  const bool has_port = colon != std::string_view::npos && authority.find(']', colon) == std::string_view::npos;
  return std::string(tls ? "https://" : "http://") + host + ":" +
         (has_port ? std::string(authority.substr(colon + 1))
          : tls    ? "443"
                   : "80");
}

LoginFor LoginFor::itself(const AskingRegistry& registry) {
  return LoginFor(place_of(registry.base_url));
}

Result<LoginFor> LoginFor::token_server(const AskingRegistry& registry, const std::string& realm, SecretOf secret,
                                        const std::vector<TokenServer>& agreed) {
  const std::string own = place_of(registry.base_url), named = place_of(realm);
  const std::string own_host = to_lower(host_of_url(registry.base_url)), host = to_lower(host_of_url(realm));
  if (own == named) return LoginFor(named);
  if (!named.starts_with("https://"))
    return fail(Error(ErrorKind::denied, registry.authority + ": its token server " + excerpt(host) +
                                             " is without TLS: no login is sent there")
                    .with_code(ErrorCode::registry_login)
                    .with_hint("ask the registry's operator for a token server at https://"));
  for (const KnownPair& pair : kPairs)
    if (pair.registry == own_host && pair.server == host && port_of(named) == "443")
      return LoginFor(named, pair.service);
  if (secret == SecretOf::registry) return LoginFor(named);
  // Another port of the host may be another user's program, unless the host's certificate speaks for both.
  if (own_host == host && registry.verified) return LoginFor(named);
  for (const TokenServer& pair : agreed)
    if (is_agreed_registry(pair.registry, registry, own_host, own) && is_agreed_server(pair.server, host, named))
      return LoginFor(named);
  const std::string name = printable(registry.verified ? own_host : own.substr(own.find("://") + 3));
  const std::string server = excerpt(port_of(named) == "443" ? host : named.substr(named.find("://") + 3));
  return fail(Error(ErrorKind::denied, printable(registry.authority) + ": names " + server +
                                           " as its token server, and gets no token of your login there")
                  .with_code(ErrorCode::registry_login)
                  .with_hint("if the two belong together, set ENROOT_TOKEN_SERVERS=" + name + "=" + server +
                             " in the environment, or the administrator in enroot.conf"));
}

Result<void> LoginFor::check(const HttpRequest& request) const {
  if (place_of(request.url) == place_) return {};
  return fail(ErrorKind::denied, authority_of(request.url) + ": the login is for " + excerpt(place_));
}

Result<void> LoginFor::add(const Credential& credential, HttpRequest& request) const {
  TRY(check(request));
  request.authorization = basic_authorization(credential.login, credential.password);
  return {};
}

Result<void> LoginFor::add_form(std::string form, HttpRequest& request) const {
  TRY(check(request));
  request.form = std::move(form);
  return {};
}

}  // namespace situla
